//! Messages about the words of a command line, and about files that verbs write for their caller.

use super::List;
use std::fs;

/// Arguments that cannot be parsed.
pub(super) fn arguments(list: &mut List) {
    for words in [
        &["dance"] as &[&str],
        &["stat", "c"],
        &["help", "dance"],
        &["dance", "--help"],
        &["--dance"],
        &["--lgo", "x", "list"],
        &["--root"],
        &["--log-level", "sideways", "list"],
        &["--cgroup-manager", "sideways", "list"],
        &["--rootless", "maybe", "list"],
        &["--debug=maybe", "list"],
        &["list", "--dance"],
        &["list", "too-much"],
        &["list", "--format", "sideways"],
        &["state"],
        &["state", "a", "b"],
        &["run", "--bundel", "b", "c"],
        &["run", "--detach=maybe", "c"],
        &["run", "--pid-file"],
        &["run", "--preserve-fds", "many", "c"],
        &["exec"],
        &["exec", "--user"],
        &["exec", "--additional-gids", "wheel", "c", "true"],
        &["plan", "--json", "--seccomp"],
        &["update", "--blkio-weight", "heavy", "c"],
        &["update", "--pids-limit", "all", "c"],
        &["checkpoint", "--status-fd", "out", "c"],
        &["register"],
        &["register", "lxc"],
        &["register", "--undo", "--default", "podman"],
        &["completion"],
        &["completion", "csh"],
        &["doctor", "--format", "sideways"],
        &["test"],
        &["test", "--tiemout", "5s", "true"],
        &["test", "--rootfs", "a", "--bundle", "b"],
        &["test", "--each", "true"],
        &["test", "--each", "--runner", "true"],
        &["test", "--net", "all", "true"],
        &["test", "--timeout", "long", "true"],
        &["test", "--memory", "much", "true"],
        &["test", "--runner", "--shard", "4/3", "true"],
    ] {
        list.add(words);
    }
}

/// Values that are checked before husk looks for a container.
pub(super) fn values(list: &mut List) {
    list.add(&["--root", "/", "list"]);
    list.add(&["--root", "/no/such", "list"]);
    list.add(&["--log", "/no/such/log", "list"]);
    for id in ["", "..", "a/b", "a b"] {
        list.add(&["state", id]);
    }
    list.add(&["kill", "c", "SIGNONSENSE"]);
    list.add(&["kill", "c", "65"]);
    list.add(&["kill", "--regex", "("]);
    list.add(&["events", "--interval", "0s", "c"]);
    list.add(&["events", "--interval", "soon", "c"]);
    for option in ["--cpu-period=a", "--cpu-quota=a", "--memory=much", "--memory-swap=1x"] {
        list.add(&["update", option, "c"]);
    }
    list.add(&["update", "--resources", "no-such", "c"]);
    fs::write(list.path("resources"), "{").unwrap();
    list.add(&["update", "--resources", "resources", "c"]);
    fs::write(list.path("resources"), "{ \"memory\": { \"limit\": \"1g\" } }").unwrap();
    list.add(&["update", "--resources", "resources", "c"]);
    fs::remove_file(list.path("resources")).unwrap();
    list.add(&["man", "dance"]);
    for option in ["--empty-ns=ipc", "--manage-cgroups-mode=none", "--page-server=1234", "--page-server=a:b"]
    {
        list.add(&["checkpoint", option, "c"]);
    }
}

/// Files that verbs write.
pub(super) fn files(list: &mut List) {
    list.add(&["spec", "--bundle", "no-such"]);
    list.add(&["spec"]);
    list.add(&["spec"]);
    for engine in ["podman", "containerd", "docker", "cri-o"] {
        for option in ["--print", "--default", "--default", "--undo", "--undo"] {
            let words = ["register", engine, option, "--etc", "{here}/etc", "--program", "/opt/husk"];
            match option {
                "--print" => list.add_printed(&[&words[..2], &["--undo"], &words[2..]].concat()),
                _ => list.add_printed(&words),
            }
        }
    }
    for (engine, file, text) in [
        ("docker", "docker/daemon.json", "{"),
        ("docker", "docker/daemon.json", "{ \"default-runtime\": \"runc\" }"),
        ("docker", "docker/daemon.json", "[]"),
        ("docker", "docker/daemon.json", "{ \"runtimes\": [] }"),
        ("containerd", "containerd/config.toml", "version = "),
        ("containerd", "containerd/config.toml", "version = 1"),
        (
            "containerd",
            "containerd/config.toml",
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.husk]\nruntime_type = \"x\"",
        ),
    ] {
        fs::write(list.path("etc").join(file), text).unwrap();
        list.explain(&format!("{file} is {text:?}"));
        list.add(&["register", engine, "--default", "--etc", "{here}/etc", "--program", "/opt/husk"]);
        fs::remove_file(list.path("etc").join(file)).unwrap();
    }
}
