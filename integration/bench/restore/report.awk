# Shows the times of run.sh as tables in Markdown, or as a plot in SVG if `plot` is its title.

BEGIN { FS = "," }
FNR > 1 { key = $1 SUBSEP $2; value[key, ++count[key]] = $4; at[$1, $2, $3] = $4; if ($3 >= rounds[$1]) rounds[$1] = $3 + 1 }

# Sorts list[1..n] and returns the value below which this share of it lies.
function share_of(list, n, share,    i, j, x) {
    for (i = 2; i <= n; i++) {
        x = list[i]
        for (j = i - 1; j > 0 && list[j] > x; j--) list[j + 1] = list[j]
        list[j + 1] = x
    }
    return share == 0.5 ? (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2 : list[int((n - 1) * share + 1.5)]
}
function quantile(what, who, share,    list, i, n) {
    n = count[what, who]
    for (i = 1; i <= n; i++) list[i] = value[what, who, i]
    return n ? share_of(list, n, share) : ""
}
function median(what, who) { return quantile(what, who, 0.5) }
# The median of the ratios within the rounds.
function ratio(what, who, other_what, other,    list, i, n) {
    for (i = 0; i < rounds[what]; i++)
        if ((what, who, i) in at && at[other_what, other, i] > 0) list[++n] = at[what, who, i] / at[other_what, other, i]
    return n ? sprintf("%.2f", share_of(list, n, 0.5)) : ""
}
function ms(what, who, unit) {
    if (!((what, who) in count)) return ""
    return sprintf("%.0f (%.0f, %.0f)", median(what, who) / unit, quantile(what, who, 0.1) / unit, quantile(what, who, 0.9) / unit)
}
function row(label, what, unit) {
    if (!((what, "husk") in count)) return
    printf "| %s | %s | %s | %s |\n", label, ms(what, "husk", unit), ms(what, "runc", unit), ratio(what, "husk", what, "runc")
}
function head(title, words) {
    printf "\n## %s\n\n%s\n\n| | husk | runc | husk ÷ runc |\n| - | -: | -: | -: |\n", title, words
}
function sizes(verb,    i) {
    for (i = 1; i <= 6; i++) row(processes[i] (i == 1 ? " process" : " processes"), verb " " processes[i] " 1", 1000)
    row("1 process, 1 GiB", verb " 1 1024", 1000)
}

function tables(    i) {
    print "\nImages and root file systems are on a tmpfs. Both runtimes use the same CRIU and take turns, and another one begins"
    print "in each round. A time is the median in ms, with the 10th and 90th percentile in parentheses. A ratio is the median"
    print "of the ratios within the rounds."
    if (("restore 1 1", "husk") in count) times_of_verbs()
    pauses()
}

function times_of_verbs(    i) {
    print "\n## In short\n\n| | measured | aim |\n| - | -: | -: |"
    for (i = 1; i <= 6; i++) if (((("restore " processes[i] " 1"), "runc") in count))
        printf "| restore of %d, husk ÷ runc | %s | 1.00 |\n", processes[i], ratio("restore " processes[i] " 1", "husk", "restore " processes[i] " 1", "runc")
    printf "| restore of 1 GiB, husk ÷ runc | %s | 1.00 |\n", ratio("restore 1 1024", "husk", "restore 1 1024", "runc")
    printf "| restore by husk, 8 processes ÷ 1 process | %.2f | 1.30 |\n", median("restore 8 1", "husk") / median("restore 1 1", "husk")
    head("Restore", "`restore --detach`, until the container runs.")
    sizes("restore")
    row("20 containers at once", "at-once 20", 1000)
    head("Checkpoint", "`checkpoint`, until the container has ended and is deleted.")
    sizes("checkpoint")
}

function pauses(    i) {
    head("Pauses of a container that writes " rate " MB/s", "It has " memory " MiB, and is saved after copies of its memory ahead of time (`--pre-dump`), and restored. *All* is the sum\nof its pauses from the first copy until it runs again, *last* the one from the checkpoint to the restore.")
    for (i = 0; i <= 3; i += i ? 2 : 1) row("all, " i (i == 1 ? " copy" : " copies"), "pause-all " i, 1000)
    for (i = 0; i <= 3; i += i ? 2 : 1) row("last, " i (i == 1 ? " copy" : " copies"), "pause-last " i, 1000)
    for (i = 0; i <= 3; i += i ? 2 : 1) row("last image in MiB, " i (i == 1 ? " copy" : " copies"), "image-kib " i, 1024)
}

function text(x, y, anchor, font, words) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" style=\"font: %s sans-serif\">%s</text>\n", x, y, anchor, font, words
}
function bar(label, what, who, most,    scale, middle) {
    if (!((what, who) in count)) return
    scale = 560 / most
    middle = y + 8
    text(176, middle + 4, "end", "12px", label " " who)
    printf "<rect x=\"184\" y=\"%.1f\" width=\"%.1f\" height=\"15\" fill=\"%s\" fill-opacity=\"0.75\"/>\n", y, median(what, who) * scale, who == "husk" ? "#1a9850" : "#2166ac"
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"black\" stroke-width=\"1.5\"/>\n", 184 + quantile(what, who, 0.1) * scale, middle, 184 + quantile(what, who, 0.9) * scale, middle
    text(190 + quantile(what, who, 0.9) * scale, middle + 4, "start", "12px", sprintf("%.0f", median(what, who) / 1000))
    y += 18
}
function group(title, names, labels, n,    i, most, x) {
    for (i = 1; i <= n; i++) {
        x = quantile(names[i], "husk", 0.9); if (x > most) most = x
        x = quantile(names[i], "runc", 0.9); if (x > most) most = x
    }
    if (most == 0) return
    y += 34
    text(24, y - 8, "start", "bold 13px", title)
    for (i = 1; i <= n; i++) { bar(labels[i], names[i], "husk", most); bar(labels[i], names[i], "runc", most); y += 4 }
}
function draw(    i, n, names, labels, verb, v) {
    y = 58
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"850\" height=\"1060\">"
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    text(24, 30, "start", "bold 17px", plot)
    text(24, 50, "start", "11px", "medians in ms; line: 10th to 90th percentile; every group has its own scale")
    for (v = 1; v <= 2; v++) {
        verb = v == 1 ? "restore" : "checkpoint"
        for (i = 1; i <= 6; i++) { names[i] = verb " " processes[i] " 1"; labels[i] = processes[i] }
        group(verb ", number of processes", names, labels, 6)
        names[1] = verb " 1 1024"; labels[1] = "1 GiB"
        n = 1
        if (v == 1) { names[2] = "at-once 20"; labels[2] = "20 at once"; n = 2 }
        group(verb ", large", names, labels, n)
    }
    n = 0
    for (i = 0; i <= 3; i += i ? 2 : 1) { names[++n] = "pause-all " i; labels[n] = "copies: " i }
    group("all pauses of a container that writes 100 MB/s", names, labels, n)
    print "</svg>"
}

END {
    split("1 2 4 8 64 256", processes, " ")
    if (plot != "") draw(); else tables()
}
