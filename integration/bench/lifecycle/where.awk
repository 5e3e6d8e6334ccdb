# Sums up what perf trace recorded (where.sh): prints tables as Markdown, or a plot if `plot` is its title.
#
# A line is: ROUND TIME ( DURATION ms): NAME/PID CALL(ARGUMENTS) = RESULT. The first process of a round is the runtime,
# the other one its child. Times are in ms, and may begin in the middle of a call.

function kind_of(call, arguments) {
    if (call ~ /^(clone|clone3|setns|unshare)$/) return "starting the child in new namespaces"
    if (call == "bpf") return "the program that limits devices"
    if (call ~ /^(mkdir|rmdir|unlink)/) return "making and removing directories, mostly of the cgroup"
    if (call ~ /^(fsopen|fsconfig|fsmount|move_mount|open_tree|mount_setattr|mount|umount|umount2|pivot_root)$/) return "mounts"
    if (call ~ /^(ppoll|poll|epoll_.*|rt_sigtimedwait|waitid|wait4|recvmsg|recvfrom)$/) return "waiting"
    if (call ~ /^(execve|exit|exit_group)$/) return "beginning and end of the program"
    if (call ~ /^(mmap|munmap|mremap|mprotect|brk|madvise)$/ || (call == "prctl" && arguments ~ /SET_MM/)) return "memory"
    if (call ~ /^(prctl|cap.*|set.*|get.*id|rt_sig.*|keyctl|umask|sched_.*|prlimit.*|seccomp|arch_prctl|rseq)$/) return "identity, signals and limits"
    return "other files and descriptors"
}

function median(list, n,    i, j, t) {
    for (i = 2; i <= n; i++) {
        t = list[i]
        for (j = i - 1; j > 0 && list[j] > t; j--) list[j + 1] = list[j]
        list[j + 1] = t
    }
    return n ? (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2 : 0
}

# Returns the median over all rounds of a value by round; rounds without it count as 0.
function over_rounds(values, key,    i, list) {
    for (i = 1; i <= rounds; i++) list[i] = values[key, round_names[i]] + 0
    return median(list, rounds)
}

match($0, /\([ 0-9.]+ms\): /) && match($0, /[^ \/]+\/[0-9]+ +(\.\.\. \[continued\]: )?[a-z0-9_]+\(/) {
    parts_of_call = split(substr($0, RSTART, RLENGTH - 1), words, /[ \/]+/)
    pid = words[2]
    call = words[parts_of_call]
    arguments = substr($0, RSTART + RLENGTH)
    time = $2 + 0
    duration = $0
    sub(/^[^(]*\( */, "", duration)
    duration += 0
    if (!($1 in runtime)) {
        runtime[$1] = pid
        round_names[++rounds] = $1
        begin[$1] = time
    }
    who = pid == runtime[$1] ? "runtime" : "child"
    if (!((who, $1) in first)) first[who, $1] = time
    last[who, $1] = time + duration
    kind = kind_of(call, arguments)
    kinds[kind] = 1
    spent[who, kind, $1] += duration
    counted[who, kind, $1]++
    in_calls[who, $1] += duration
    single = call
    if (call == "mkdirat" || call == "unlinkat" || call ~ /^(openat|openat2|read|write|close|prctl|rt_sigaction|fstat)$/) next
    if (duration > longest[who, single, $1]) longest[who, single, $1] = duration
    singles[who, single] = 1
}

function rows(    kind, who, i, n) {
    for (i = 1; i <= rounds; i++)
        for (n = split("runtime child", parts, " "); n > 0; n--) {
            who = parts[n]
            whole[who, round_names[i]] = last[who, round_names[i]] - first[who, round_names[i]]
            own[who, round_names[i]] = whole[who, round_names[i]] - in_calls[who, round_names[i]]
        }
    for (kind in kinds)
        for (n = split("runtime child", parts, " "); n > 0; n--) {
            table[kind, parts[n]] = over_rounds(spent, parts[n] SUBSEP kind)
            number[kind, parts[n]] = over_rounds(counted, parts[n] SUBSEP kind)
        }
    own_kind = "own instructions and page faults"
    kinds[own_kind] = 1
    table[own_kind, "runtime"] = over_rounds(own, "runtime")
    table[own_kind, "child"] = over_rounds(own, "child")
    all["runtime"] = over_rounds(whole, "runtime")
    all["child"] = over_rounds(whole, "child")
    # Sorted by the time of both, waiting last.
    for (kind in kinds) {
        weight = kind == "waiting" ? -1 : table[kind, "runtime"] + table[kind, "child"]
        for (i = ++sorted_count; i > 1 && weights[i - 1] < weight; i--) {
            weights[i] = weights[i - 1]
            sorted[i] = sorted[i - 1]
        }
        weights[i] = weight
        sorted[i] = kind
    }
}

function print_tables(    i, kind, key, parts, list, n, j, v) {
    print "Medians in ms, as recorded by perf, which makes each call about 1 us longer. The runtime waits while its child"
    print "works, so the columns overlap.\n"
    print "| | runtime | calls | child | calls |\n| - | -: | -: | -: | -: |"
    for (i = 1; i <= sorted_count; i++) {
        kind = sorted[i]
        printf "| %s | %.3f | %d | %.3f | %d |\n", kind, table[kind, "runtime"], number[kind, "runtime"], table[kind, "child"], number[kind, "child"]
    }
    printf "| from first to last | %.3f | | %.3f | |\n", all["runtime"], all["child"]
    print "\nThe longest single calls:\n\n| call | by | median |\n| - | - | -: |"
    for (key in singles) {
        v = over_rounds(longest, key)
        split(key, parts, SUBSEP)
        if (kind_of(parts[2], "") == "waiting") continue
        for (j = ++n; j > 1 && list[j - 1] < v; j--) {
            list[j] = list[j - 1]
            names[j] = names[j - 1]
        }
        list[j] = v
        names[j] = sprintf("| `%s` | %s |", parts[2], parts[1])
    }
    for (i = 1; i <= n && i <= 10; i++) printf "%s %.3f |\n", names[i], list[i]
}

function print_plot(    i, kind, y, x, wide, scale, width) {
    width = 900
    for (i = 1; i <= sorted_count; i++) {
        wide = table[sorted[i], "runtime"] + table[sorted[i], "child"]
        if (sorted[i] != "waiting" && wide > scale) scale = wide
    }
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n", width, 70 + 26 * sorted_count
    print "<style>text{fill:#222}.r{fill:#3b6ea5}.c{fill:#d9822b}@media (prefers-color-scheme: dark){text{fill:#ddd}}</style>"
    printf "<text x=\"10\" y=\"22\" font-size=\"16\">%s: median ms of each kind of work</text>\n", plot
    print "<rect class=\"r\" x=\"10\" y=\"34\" width=\"12\" height=\"12\"/><text x=\"28\" y=\"45\">runtime</text>"
    print "<rect class=\"c\" x=\"100\" y=\"34\" width=\"12\" height=\"12\"/><text x=\"118\" y=\"45\">child</text>"
    y = 62
    for (i = 1; i <= sorted_count; i++) {
        kind = sorted[i]
        if (kind == "waiting") continue
        x = 400
        printf "<text x=\"390\" y=\"%d\" text-anchor=\"end\">%s</text>\n", y + 13, kind
        wide = table[kind, "runtime"] / scale * 420
        printf "<rect class=\"r\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"18\"/>\n", x, y, wide
        printf "<rect class=\"c\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"18\"/>\n", x + wide, y, table[kind, "child"] / scale * 420
        wide += table[kind, "child"] / scale * 420
        printf "<text x=\"%.1f\" y=\"%d\">%.2f</text>\n", x + wide + 6, y + 13, table[kind, "runtime"] + table[kind, "child"]
        y += 26
    }
    print "</svg>"
}

END {
    rows()
    if (plot) print_plot()
    else print_tables()
}
