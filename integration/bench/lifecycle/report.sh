# shellcheck shell=bash disable=SC2154
# Writes the report of run.sh, which sources this file: tables as Markdown to standard output and report.md, and a plot
# to report.svg.

# Prints a line for each thing measured: section,what,who,count,median,10th percentile,90th percentile,median of memory.
statistics() {
    tail -n +2 "$times" | sort -t , -k 1,3 -k 5,5n | awk -F , '
        function at(share) { return times[int((n - 1) * share + 1.5)] }
        function done() {
            if (n) print key "," n "," (times[int((n + 1) / 2)] + times[int(n / 2) + 1]) / 2e6 "," at(0.1) / 1e6 "," at(0.9) / 1e6 "," most
            n = most = 0
        }
        key != $1 "," $2 "," $3 { done(); key = $1 "," $2 "," $3 }
        { times[++n] = $5; if ($6 > most) most = $6 }
        END { done() }'
}

facts() {
    local who
    echo "- commit: $(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)$([ -z "$(git -C "$root" status --porcelain --untracked-files=no 2>/dev/null)" ] || echo ' with changes')"
    echo "- machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors"
    echo "- kernel: $(uname -r)"
    echo "- load: $load_before before, $(cut -d ' ' -f 1-3 /proc/loadavg) after"
    for who in husk crun runc youki bwrap; do
        [ -z "${binary[$who]-}" ] || echo "- $who: $("${binary[$who]}" --version | head -n 1), $(stat --format %s "${binary[$who]}") bytes"
    done
    echo "- $rounds rounds; half as many with cgroups of version 1, without root and beside others, and a fifth at once"
    sed 's/^/- /' "$notes"
}

report() {
    echo "# The life of a container, $BENCH_DAY"
    echo
    facts
    cat <<'END'

A container of `husk spec` runs a static program that does nothing. State, bundles and root file systems are on a tmpfs,
and cgroups are of version 2 if nothing else is said. Medians are in ms. The number in parentheses says how many times
as long husk takes, so 0.50 means half as long.

*floor* is a program in C that makes the same system calls as `husk run`, except those that only ask (floor.c). *remap*
also replaces its mappings by those of a read-only mount. *reexec* executes itself again from that mount instead, as husk
does if the kernel refuses to replace mappings, and *seal* from a sealed copy in memory, as husk does where it may not
mount. *devices* also loads the program that limits access to devices. *all* is *remap* and *devices*, as husk does.
*total* is create, start, end and delete, without state.
END
    awk -v alive="$alive" -f "$here/report.awk" "$work/statistics"
    printf '\n![Medians as bars](lifecycle-%s.svg)\n' "$BENCH_DAY"
}

statistics >"$work/statistics"
report | tee "$BENCH_WORK/report.md"
title="The life of a container, $BENCH_DAY, Linux $(uname -r)"
awk -v plot="$title" -v alive="$alive" -f "$here/report.awk" "$work/statistics" >"$BENCH_WORK/report.svg"
