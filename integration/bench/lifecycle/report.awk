# Shows statistics (report.sh) as tables in Markdown, or as a plot in SVG if `plot` is its title.

BEGIN {
    FS = ","
    split("husk crun runc youki", runtimes, " ")
    split("floor floor-remap floor-reexec floor-seal floor-devices floor-all husk crun runc youki bwrap unshare nothing", everybody, " ")
    colour["husk"] = "#1a9850"; colour["crun"] = "#d9820f"; colour["runc"] = "#2166ac"; colour["youki"] = "#b2182b"
    colour["bwrap"] = "#d9820f"; colour["unshare"] = "#7b5ea7"; colour["nothing"] = "#999999"
}

{ median[$1, $2, $3] = $5; low[$1, $2, $3] = $6; high[$1, $2, $3] = $7; memory[$1, $2, $3] = $8; measured[$1, $3] = 1 }

function ratio(section, what, who) {
    if (!((section, what, "husk") in median) || !((section, what, who) in median)) return ""
    return sprintf("%.2f", median[section, what, "husk"] / median[section, what, who])
}

# Begins a table whose columns are those competitors that were measured in the section. Sets `columns` and `column`.
function head(section, title,    i, line, rule) {
    columns = 0
    for (i = 1; i in everybody; i++) if ((section, everybody[i]) in measured) column[++columns] = everybody[i]
    line = "| |"; rule = "| - |"
    for (i = 1; i <= columns; i++) { line = line " " column[i] " |"; rule = rule " -: |" }
    printf "%s%s\n%s\n", title == "" ? "" : "\n## " title "\n\n", line, rule
}

function row(section, what, label,    i, who, line) {
    line = "| " label " |"
    for (i = 1; i <= columns; i++) {
        who = column[i]
        if (!((section, what, who) in median)) line = line " |"
        else if (who == "husk") line = line sprintf(" %.2f |", median[section, what, who])
        else line = line sprintf(" %.2f (%s) |", median[section, what, who], ratio(section, what, who))
    }
    print line
}

function rate_row(count,    i, who, line) {
    line = "| " count " |"
    for (i = 1; i <= columns; i++) {
        who = column[i]
        line = line sprintf(" %.0f |", count / median["at-once", count, who] * 1000)
    }
    print line
}

function target(label, section, what, who, most,    r) {
    r = ratio(section, what, who)
    if (r != "") printf "| %s | %s | %s |\n", label, r, most
}

function tables(    i, who) {
    print "\n## In short\n\nHow many times as long husk takes, and the target: the most that it should take.\n"
    print "| | husk ÷ it | target |\n| - | -: | -: |"
    target("`run` ÷ floor", "run", "run", "floor", "")
    target("`run` ÷ floor with everything", "run", "run", "floor-all", "1.40")
    target("`run` ÷ crun", "run", "run", "crun", "0.42")
    target("`run` ÷ runc", "run", "run", "runc", "0.20")
    target("`run` with a seccomp profile ÷ crun", "seccomp", "run", "crun", "0.30")
    target("`create` ÷ crun", "life", "create", "crun", "0.45")
    target("`create`, `start`, `delete` ÷ crun", "life", "total", "crun", "")
    target("`exec` ÷ crun", "exec", "exec", "crun", "0.38")
    target("sandbox of a user ÷ unshare", "sandbox", "user", "unshare", "1.15")
    target("sandbox of a user ÷ bubblewrap", "sandbox", "user", "bwrap", "0.65")
    if (("alive", "alive-" alive, "husk") in median && ("alive", "alive-0", "husk") in median)
        printf "| `run` beside %d containers ÷ beside none | %.2f | 1.30 |\n", alive,
            median["alive", "alive-" alive, "husk"] / median["alive", "alive-0", "husk"]
    if (("run", "run", "husk") in memory) printf "| peak memory of `run`, KiB | %d | 2253 |\n", memory["run", "run", "husk"]
    if (("parked", "dirty", "husk") in memory)
        printf "| private memory of a created container, KiB | %d | 256 |\n", memory["parked", "dirty", "husk"]

    print "\n## `run`\n\n| | median | 10 % | 90 % | husk ÷ it | peak memory, KiB |\n| - | -: | -: | -: | -: | -: |"
    for (i = 1; i in everybody; i++) {
        who = everybody[i]
        if (("run", "run", who) in median)
            printf "| %s | %.2f | %.2f | %.2f | %s | %d |\n", who, median["run", "run", who], low["run", "run", who],
                high["run", "run", who], ratio("run", "run", who), memory["run", "run", who]
    }
    head("life", "The other verbs")
    row("version", "version", "`--version`")
    row("seccomp", "run", "`run` with Docker's seccomp profile, cold")
    row("life", "create", "`create`"); row("life", "state", "`state`"); row("life", "start", "`start`")
    row("life", "end", "until the end"); row("life", "delete", "`delete`"); row("life", "total", "total")
    row("exec", "exec", "`exec`")
    head("at-once", "Several `run` at once, in starts per second")
    rate_row(1); rate_row(2); rate_row(8)
    head("alive", "`run` beside other containers")
    row("alive", "alive-0", "0 alive"); row("alive", "alive-" alive, alive " alive")
    head("rootless", "`run` by a user")
    row("rootless", "run", "`run`")
    head("v1", "`run` with cgroups of version 1")
    row("v1", "run", "`run`")
    head("sandbox", "A sandbox, `husk test -- true`")
    row("sandbox", "root", "root"); row("sandbox", "user", "a user")
    print "\n## Memory of a created container\n\nPrivate dirty memory of its processes before `start`, in KiB.\n"
    head("parked", "")
    line = "| |"
    for (i = 1; i <= columns; i++) line = line " " memory["parked", "dirty", column[i]] " |"
    print line
}

function text(x, y, anchor, font, words) {
    gsub(/&/, "\\&amp;", words); gsub(/</, "\\&lt;", words)
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" style=\"font: %s sans-serif\">%s</text>\n", x, y, anchor, font, words
}

# Draws the bars of one thing: medians, with a line from the 10th to the 90th percentile. Each group has its own scale,
# which begins at zero, because the groups differ by a factor of a hundred.
function group(section, what, title,    i, who, most, n, scale) {
    for (i = 1; i in everybody; i++) {
        who = everybody[i]
        if ((section, what, who) in median && high[section, what, who] > most) most = high[section, what, who]
    }
    if (most == 0) return
    scale = 560 / most
    y += 40
    body = body sprintf("B %.1f %s\n", y - 10, title)
    for (i = 1; i in everybody; i++) {
        who = everybody[i]
        if (!((section, what, who) in median)) continue
        body = body sprintf("R %.1f %s %s %.1f %.1f %.1f %.2f\n", y, who, who in colour ? colour[who] : "#222222",
            median[section, what, who] * scale, low[section, what, who] * scale, high[section, what, who] * scale,
            median[section, what, who])
        y += 19
    }
}

function draw(    lines, n, i, f) {
    y = 60
    group("run", "run", "run"); group("seccomp", "run", "run with a seccomp profile"); group("life", "create", "create")
    group("life", "start", "start"); group("life", "delete", "delete"); group("exec", "exec", "exec")
    group("version", "version", "--version"); group("rootless", "run", "run by a user")
    group("v1", "run", "run with cgroups of version 1"); group("alive", "alive-" alive, "run beside " alive " containers")
    group("sandbox", "root", "a sandbox of root"); group("sandbox", "user", "a sandbox of a user")
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"850\" height=\"%d\">\n", y + 24
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    text(24, 30, "start", "bold 17px", plot)
    text(24, 50, "start", "11px", "medians in ms; line: 10th to 90th percentile; every group has its own scale")
    n = split(body, lines, "\n")
    for (i = 1; i < n; i++) {
        if (lines[i] ~ /^B/) {
            split(lines[i], f, " ")
            text(24, f[2], "start", "bold 13px", substr(lines[i], length(f[2]) + 4))
            continue
        }
        split(lines[i], f, " ")
        text(132, f[2] + 13, "end", "12px", f[3])
        printf "<rect x=\"140\" y=\"%.1f\" width=\"%s\" height=\"15\" fill=\"%s\" fill-opacity=\"0.75\"/>\n", f[2] + 2, f[5], f[4]
        printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"black\" stroke-width=\"1.5\"/>\n",
            140 + f[6], f[2] + 9.5, 140 + f[7], f[2] + 9.5
        text(146 + f[7], f[2] + 13, "start", "12px", f[8])
    }
    print "</svg>"
}

END { if (plot == "") tables(); else draw() }
