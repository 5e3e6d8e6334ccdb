//! Turns facts into findings: what they mean, and how to fix problems. It does no I/O.

use super::facts::{Facts, Hierarchies, UserNamespaces};
use super::finding::{Finding, Verdict};
use crate::criu;
use crate::host::seal::Sealed;
use husk_script::sys::Errno;

/// The oldest kernel with every feature that husk uses without checking.
const OLDEST: (u32, u32) = (5, 14);

/// The fix for a user without subordinate ids.
const SUBIDS: &str = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER";

/// Returns a finding for every topic, in the order in which failures would occur.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = vec![kernel(facts), calls(facts)];
    found.push(if facts.euid == 0 { namespaces(facts) } else { user_namespaces(facts) });
    if facts.euid == 0 {
        found.push(user_namespaces(facts));
    }
    // Without user namespaces there is nothing to say about file systems in them.
    if facts.users.made.is_ok() && facts.users.mount.is_ok() {
        found.extend([procfs(facts), overlay(facts)]);
    }
    found.extend(seal(facts));
    found.push(ids(facts));
    found.extend([cgroups(facts), systemd(facts), seccomp(facts), confinement(facts), landlock(facts)]);
    found.extend(idmapped_mounts(facts));
    found.extend([limits(facts), criu(facts)]);
    found
}

impl Finding {
    fn ok(topic: &'static str, text: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Ok, text: text.into(), fix: None }
    }

    fn bad(topic: &'static str, verdict: Verdict, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { topic, verdict, text: text.into(), fix: Some(fix.into()) }
    }
}

impl Facts {
    /// Returns the severity of a lack that affects unprivileged users only.
    fn for_users(&self) -> Verdict {
        if self.euid == 0 { Verdict::Warning } else { Verdict::Problem }
    }
}

fn kernel(facts: &Facts) -> Finding {
    let mut numbers =
        facts.release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let text = format!("Linux {}", facts.release);
    if version >= OLDEST {
        Finding::ok("kernel", text)
    } else {
        let (major, minor) = OLDEST;
        Finding::bad("kernel", Verdict::Problem, text, format!("install Linux {major}.{minor} or newer"))
    }
}

fn calls(facts: &Facts) -> Finding {
    const TOPIC: &str = "system calls";
    match facts.openat2 {
        Ok(()) => Finding::ok(TOPIC, "openat2 works"),
        Err(errno) => Finding::bad(
            TOPIC,
            Verdict::Problem,
            format!("openat2: {errno}"),
            "a seccomp filter does not know openat2; in a container, use a newer seccomp profile or none",
        ),
    }
}

fn namespaces(facts: &Facts) -> Finding {
    const TOPIC: &str = "namespaces";
    match facts.namespaces {
        Ok(()) => Finding::ok(TOPIC, "root can create them"),
        Err(Errno::PERM) => Finding::bad(
            TOPIC,
            Verdict::Problem,
            refused(Errno::PERM),
            "grant CAP_SYS_ADMIN; if this is a container, start it with --privileged or --cap-add SYS_ADMIN",
        ),
        Err(errno) => Finding::bad(
            TOPIC,
            Verdict::Problem,
            refused(errno),
            "raise the limits in /proc/sys/user, or use a kernel that supports all namespaces",
        ),
    }
}

fn user_namespaces(facts: &Facts) -> Finding {
    const TOPIC: &str = "user namespaces";
    let bad = |text, fix: &str| Finding::bad(TOPIC, facts.for_users(), text, fix);
    let UserNamespaces { made, mount, most, debian, ubuntu, .. } = &facts.users;
    match (made, mount) {
        (Ok(()), Ok(())) => Finding::ok(TOPIC, "users can create them"),
        (Err(errno), _) if *most == Some(0) => {
            bad(refused(*errno), "turn them on: sysctl -w user.max_user_namespaces=15000")
        }
        (Err(errno), _) if *debian == Some(0) => {
            bad(refused(*errno), "turn them on: sysctl -w kernel.unprivileged_userns_clone=1")
        }
        (Err(errno), _) | (_, Err(errno)) if ubuntu.is_some_and(|restricted| restricted != 0) => bad(
            refused(*errno),
            "AppArmor restricts them; write a profile for husk with the rule 'userns,', or run \
             sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (Err(errno @ Errno::NOSPC), _) => {
            bad(refused(*errno), "the limit is reached; raise it: sysctl -w user.max_user_namespaces=15000")
        }
        (Err(errno @ Errno::INVAL), _) => bad(refused(*errno), "use a kernel with CONFIG_USER_NS"),
        (Err(errno), _) => bad(
            refused(*errno),
            "a filter of system calls or a security module refuses them: in a container, use a profile that allows them",
        ),
        (_, Err(errno)) => bad(
            format!("mounts fail in them: {errno}"),
            "a security module denies privileges in user namespaces; see the kernel log",
        ),
    }
}

fn procfs(facts: &Facts) -> Finding {
    const TOPIC: &str = "procfs";
    match facts.users.procfs {
        Ok(()) => Finding::ok(TOPIC, "mounts work in user namespaces"),
        Err(errno) => Finding::bad(
            TOPIC,
            facts.for_users(),
            format!("mounts fail in user namespaces: {errno}"),
            "parts of /proc are masked; if this is a container, start it with --security-opt unmask=ALL (podman), \
             systempaths=unconfined (docker), or procMount: Unmasked (Kubernetes)",
        ),
    }
}

fn overlay(facts: &Facts) -> Finding {
    const TOPIC: &str = "overlay";
    match facts.users.overlay {
        Ok(()) => Finding::ok(TOPIC, "mounts work in user namespaces"),
        Err(errno) => Finding::bad(
            TOPIC,
            Verdict::Warning,
            format!("mounts fail in user namespaces: {errno}"),
            if errno == Errno::NODEV {
                "modprobe overlay"
            } else {
                "configure the engine to use fuse-overlayfs"
            },
        ),
    }
}

fn seal(facts: &Facts) -> Option<Finding> {
    const TOPIC: &str = "husk's own binary";
    Some(match facts.seal.as_ref()? {
        Ok(Sealed::Mount) => Finding::ok(TOPIC, "protected by a read-only mount"),
        Ok(Sealed::Memory) => Finding::ok(TOPIC, "protected by a sealed copy in memory"),
        Err(reason) => Finding::bad(
            TOPIC,
            Verdict::Problem,
            format!("cannot be protected from containers: {reason}"),
            "run sysctl -w vm.memfd_noexec=0, or grant CAP_SYS_ADMIN",
        ),
    })
}

fn ids(facts: &Facts) -> Finding {
    const TOPIC: &str = "ids for users";
    let [uidmap, gidmap] = &facts.helpers;
    let bad = |text: String, fix: &str| Finding::bad(TOPIC, Verdict::Warning, text, fix);
    for (name, helper) in [("newuidmap", uidmap), ("newgidmap", gidmap)] {
        match helper {
            None => {
                return bad(format!("{name} is not installed"), "install uidmap (shadow-utils on Fedora)");
            }
            Some((path, false)) => {
                let path = path.display();
                return bad(format!("{path} has no privileges"), &format!("chmod u+s {path}"));
            }
            Some((_, true)) => {}
        }
    }
    if facts.euid == 0 {
        return Finding::ok(TOPIC, "newuidmap and newgidmap are installed");
    }
    match (&facts.many_ids, facts.subids) {
        (None, _) => bad("you have no subordinate ids".to_owned(), SUBIDS),
        (Some(Err(reason)), _) => bad(reason.clone(), SUBIDS),
        (Some(Ok(())), [uids, gids]) if uids < 65_535 || gids < 65_535 => {
            bad(format!("{uids} user ids and {gids} group ids; most images need 65536"), SUBIDS)
        }
        (Some(Ok(())), [uids, gids]) => Finding::ok(TOPIC, format!("{uids} user ids, {gids} group ids")),
    }
}

fn cgroups(facts: &Facts) -> Finding {
    const TOPIC: &str = "cgroups";
    let warning = |text: String, fix: &str| Finding::bad(TOPIC, Verdict::Warning, text, fix);
    let controllers = facts.cgroups.controllers.join(" ");
    let named = match facts.cgroups.kind {
        Hierarchies::None => {
            return warning(
                "not mounted, so containers have no limits".to_owned(),
                "mount -t cgroup2 none /sys/fs/cgroup",
            );
        }
        Hierarchies::V1 => "version 1",
        Hierarchies::Hybrid => "versions 1 and 2",
        Hierarchies::V2 => "version 2",
    };
    match (facts.cgroups.writable, facts.cgroups.kind) {
        (true, _) if ["memory", "pids", "cpu"].iter().all(|wanted| facts.has_controller(wanted)) => {
            Finding::ok(TOPIC, format!("{named}: {controllers}"))
        }
        (true, Hierarchies::V2) if facts.euid != 0 => warning(
            format!("{named}; delegated to you: {controllers}"),
            "in /etc/systemd/system/user@.service.d/delegate.conf: [Service] Delegate=cpu cpuset io memory pids",
        ),
        (true, _) => warning(
            format!("{named}; available: {controllers}"),
            "enable cpu, memory and pids on this machine, or on the host if this is a container",
        ),
        (false, Hierarchies::V2) if facts.euid != 0 => warning(
            format!("{named}; none is delegated to you, so containers have no limits"),
            "log in through systemd or run loginctl enable-linger USER, and pass --systemd-cgroup",
        ),
        (false, _) if facts.euid != 0 => warning(
            format!("{named}; users cannot create any, so containers have no limits"),
            "boot with systemd.unified_cgroup_hierarchy=1",
        ),
        (false, _) => warning(
            format!("{named}; not writable, so containers have no limits"),
            "mount /sys/fs/cgroup writable; if this is a container, start it with --privileged",
        ),
    }
}

impl Facts {
    fn has_controller(&self, name: &str) -> bool {
        self.cgroups.controllers.iter().any(|controller| controller == name)
    }
}

fn systemd(facts: &Facts) -> Finding {
    const TOPIC: &str = "systemd";
    match &facts.systemd {
        Some(Ok(version)) => Finding::ok(TOPIC, format!("version {version}; --systemd-cgroup works")),
        Some(Err(reason)) => Finding::bad(
            TOPIC,
            Verdict::Warning,
            format!("does not answer: {reason}"),
            if facts.euid == 0 {
                "install and start dbus"
            } else {
                "install dbus-user-session, and log in again so that XDG_RUNTIME_DIR is set"
            },
        ),
        None => Finding::ok(TOPIC, "not running; --systemd-cgroup does not work"),
    }
}

fn seccomp(facts: &Facts) -> Finding {
    const TOPIC: &str = "seccomp";
    let Some(actions) = &facts.seccomp else {
        return Finding::bad(
            TOPIC,
            Verdict::Warning,
            "not supported by the kernel, so engines' default profiles cannot be loaded",
            "use a kernel with CONFIG_SECCOMP_FILTER, or --security-opt seccomp=unconfined",
        );
    };
    let missing = ["kill_process", "errno", "user_notif", "log"];
    let missing: Vec<_> =
        missing.into_iter().filter(|wanted| !actions.split(' ').any(|has| has == *wanted)).collect();
    if missing.is_empty() {
        Finding::ok(TOPIC, actions.clone())
    } else {
        let text = format!("the kernel lacks {}", missing.join(" "));
        Finding::bad(TOPIC, Verdict::Warning, text, "use a newer kernel")
    }
}

fn confinement(facts: &Facts) -> Finding {
    let text = match (facts.apparmor, facts.selinux) {
        (true, true) => "AppArmor and SELinux",
        (true, false) => "AppArmor",
        (false, true) => "SELinux",
        (false, false) => {
            "neither AppArmor nor SELinux; profiles and labels in a configuration are ignored or refused"
        }
    };
    Finding::ok("confinement", text)
}

fn landlock(facts: &Facts) -> Finding {
    const TOPIC: &str = "landlock";
    let bad = |text: String, fix: &str| Finding::bad(TOPIC, Verdict::Warning, text, fix);
    match facts.landlock {
        Ok(0 | 1) => bad(
            "version 1 is too old for 'husk test', which runs without it".to_owned(),
            "install Linux 5.19 or newer",
        ),
        Ok(version) => Finding::ok(TOPIC, format!("version {version}, used by 'husk test'")),
        Err(errno) => bad(
            format!("not available, so 'husk test' runs without it: {errno}"),
            "boot with landlock in the list of security modules (lsm=landlock,...)",
        ),
    }
}

fn idmapped_mounts(facts: &Facts) -> Option<Finding> {
    const TOPIC: &str = "idmapped mounts";
    Some(match facts.idmapped_mount? {
        Ok(()) => Finding::ok(TOPIC, "supported by the root file system"),
        Err(errno) => Finding::bad(
            TOPIC,
            Verdict::Warning,
            format!("not supported by the root file system: {errno}"),
            "put volumes with mapped ids on ext4, xfs or btrfs",
        ),
    })
}

fn limits(facts: &Facts) -> Finding {
    const TOPIC: &str = "limits";
    /// The limit that engines ask for by default.
    const WANTED: u64 = 1_048_576;
    match facts.most_files {
        Some(most) if most < WANTED && !facts.may_raise_limits && facts.euid == 0 => Finding::bad(
            TOPIC,
            Verdict::Warning,
            format!("at most {most} open files, which cannot be raised; containers that request more fail"),
            "grant CAP_SYS_RESOURCE, or let the engine request less (podman: default_ulimits = [])",
        ),
        Some(most) => Finding::ok(
            TOPIC,
            format!(
                "at most {most} open files{}",
                if facts.may_raise_limits { "; can be raised" } else { "" }
            ),
        ),
        None => Finding::ok(TOPIC, "no limit of open files"),
    }
}

fn criu(facts: &Facts) -> Finding {
    const INSTALL: &str = "install a newer criu";
    let warning = |text: String, fix: &str| Finding::bad("criu", Verdict::Warning, text, fix);
    let Some(found) = &facts.criu else {
        return warning("not installed, so containers cannot be checkpointed".to_owned(), "install criu");
    };
    let version = match &found.version {
        Err(why) => {
            return warning(format!("{} does not tell its version: {why}", found.path.display()), INSTALL);
        }
        Ok(version) => *version,
    };
    if let Some(why) = criu::too_old(version, facts.euid != 0) {
        return warning(why, INSTALL);
    }
    match &found.problem {
        Some(problem) => warning(
            format!("'criu check' fails, so containers cannot be checkpointed: {problem}"),
            "install a newer criu, or a kernel with CONFIG_CHECKPOINT_RESTORE",
        ),
        None => Finding::ok("criu", format!("{}, version {}", found.path.display(), criu::dotted(version))),
    }
}

fn refused(errno: Errno) -> String {
    format!("cannot be created: {errno}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{Cgroups, FoundCriu};

    /// Returns the facts of a machine on which everything works, for root.
    fn good() -> Facts {
        Facts {
            release: "6.12.3-generic".into(),
            openat2: Ok(()),
            euid: 0,
            namespaces: Ok(()),
            users: UserNamespaces {
                made: Ok(()),
                mount: Ok(()),
                procfs: Ok(()),
                overlay: Ok(()),
                most: Some(15000),
                debian: None,
                ubuntu: None,
            },
            seal: Some(Ok(Sealed::Mount)),
            helpers: ["newuidmap", "newgidmap"].map(|name| Some((name.into(), true))),
            subids: [65536; 2],
            many_ids: None,
            cgroups: Cgroups {
                kind: Hierarchies::V2,
                controllers: ["cpu", "memory", "pids"].map(str::to_owned).to_vec(),
                writable: true,
            },
            systemd: Some(Ok(252)),
            seccomp: Some("kill_process kill_thread trap errno user_notif trace log allow".into()),
            apparmor: true,
            selinux: false,
            landlock: Ok(7),
            idmapped_mount: Some(Ok(())),
            criu: Some(FoundCriu { path: "/usr/sbin/criu".into(), version: Ok(40_200), problem: None }),
            most_files: Some(1_048_576),
            may_raise_limits: true,
        }
    }

    #[test]
    fn old_or_failing_criu_is_a_warning() {
        let text = |facts: &Facts| criu(facts).text;
        let with = |facts: Facts, version, problem: Option<&str>| {
            let found =
                FoundCriu { path: "/c".into(), version: Ok(version), problem: problem.map(str::to_owned) };
            Facts { criu: Some(found), ..facts }
        };
        assert_eq!(text(&with(good(), 40_200, None)), "/c, version 4.2");
        assert_eq!(text(&with(good(), 31_701, None)), "/c, version 3.17");
        assert!(text(&with(users(), 31_701, None)).contains("3.18 or newer, without root, is needed"));
        assert!(text(&with(good(), 31_500, None)).contains("3.16 or newer is needed"));
        assert!(text(&with(good(), 40_200, Some("Error (x)"))).contains("'criu check' fails"));
    }

    /// Like [`good`], for an unprivileged user.
    fn users() -> Facts {
        Facts {
            euid: 1000,
            seal: None,
            idmapped_mount: None,
            many_ids: Some(Ok(())),
            may_raise_limits: false,
            ..good()
        }
    }

    /// Asserts that there is exactly one finding that is not `Ok`, and that its fix contains `fix`.
    #[track_caller]
    fn finds(facts: &Facts, topic: &str, verdict: Verdict, fix: &str) {
        let found = judge(facts);
        let found: Vec<_> = found.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
        let [found] = found[..] else { panic!("{found:#?}") };
        assert_eq!((found.topic, found.verdict), (topic, verdict));
        assert!(found.fix.as_ref().is_some_and(|text| text.contains(fix)), "{found:?}");
    }

    #[test]
    fn healthy_machine_has_no_problems() {
        for facts in [good(), users()] {
            let found = judge(&facts);
            assert!(
                found.iter().all(|finding| finding.verdict == Verdict::Ok && finding.fix.is_none()),
                "{found:#?}"
            );
        }
    }

    #[test]
    fn old_kernel_is_a_problem() {
        for release in ["5.13.19", "4.18.0-553.el8", ""] {
            finds(&Facts { release: release.into(), ..good() }, "kernel", Verdict::Problem, "5.14");
        }
        finds(&Facts { openat2: Err(Errno::PERM), ..good() }, "system calls", Verdict::Problem, "profile");
    }

    #[test]
    fn disabled_user_namespaces_are_a_problem_and_the_switch_is_named() {
        let with = |facts: Facts, change: fn(&mut UserNamespaces)| {
            let mut facts = facts;
            change(&mut facts.users);
            facts
        };
        type Change = fn(&mut UserNamespaces);
        let changes: [(Change, &str); 6] = [
            (|users| (users.made, users.most) = (Err(Errno::NOSPC), Some(0)), "user.max_user_namespaces"),
            (|users| (users.made, users.debian) = (Err(Errno::PERM), Some(0)), "unprivileged_userns_clone=1"),
            (
                |users| (users.mount, users.ubuntu) = (Err(Errno::ACCESS), Some(1)),
                "apparmor_restrict_unprivileged_userns=0",
            ),
            (|users| users.made = Err(Errno::NOSPC), "limit is reached"),
            (|users| users.made = Err(Errno::PERM), "profile that allows them"),
            (|users| users.made = Err(Errno::INVAL), "CONFIG_USER_NS"),
        ];
        for (change, fix) in changes {
            finds(&with(users(), change), "user namespaces", Verdict::Problem, fix);
            finds(&with(good(), change), "user namespaces", Verdict::Warning, fix);
        }
        finds(
            &with(users(), |users| users.procfs = Err(Errno::PERM)),
            "procfs",
            Verdict::Problem,
            "unmask=ALL",
        );
        finds(
            &with(users(), |users| users.overlay = Err(Errno::NODEV)),
            "overlay",
            Verdict::Warning,
            "modprobe",
        );
        finds(&with(users(), |users| users.overlay = Err(Errno::PERM)), "overlay", Verdict::Warning, "fuse");
    }

    #[test]
    fn missing_privileges_of_root_are_a_problem() {
        finds(
            &Facts { namespaces: Err(Errno::PERM), ..good() },
            "namespaces",
            Verdict::Problem,
            "CAP_SYS_ADMIN",
        );
        let seal = Some(Err("no".into()));
        finds(&Facts { seal, ..good() }, "husk's own binary", Verdict::Problem, "memfd_noexec");
        let facts = Facts { most_files: Some(20_000), may_raise_limits: false, ..good() };
        finds(&facts, "limits", Verdict::Warning, "CAP_SYS_RESOURCE");
        let facts = Facts { landlock: Err(Errno::OPNOTSUPP), ..good() };
        finds(&facts, "landlock", Verdict::Warning, "lsm=landlock");
        finds(&Facts { landlock: Ok(1), ..good() }, "landlock", Verdict::Warning, "5.19");
        finds(
            &Facts { idmapped_mount: Some(Err(Errno::INVAL)), ..good() },
            "idmapped mounts",
            Verdict::Warning,
            "ext4",
        );
    }

    #[test]
    fn missing_subids_are_a_warning() {
        let topic = "ids for users";
        finds(&Facts { helpers: [None, None], ..good() }, topic, Verdict::Warning, "uidmap");
        let helpers = [Some(("/bin/newuidmap".into(), false)), None];
        finds(&Facts { helpers, ..users() }, topic, Verdict::Warning, "chmod u+s /bin/newuidmap");
        finds(&Facts { many_ids: None, subids: [0; 2], ..users() }, topic, Verdict::Warning, "usermod");
        finds(
            &Facts { many_ids: Some(Err("refused".into())), ..users() },
            topic,
            Verdict::Warning,
            "usermod",
        );
        finds(&Facts { subids: [65536, 10], ..users() }, topic, Verdict::Warning, "usermod");
    }

    #[test]
    fn unusable_cgroups_are_a_warning() {
        let with = |facts: Facts, kind, controllers: &[&str], writable| Facts {
            cgroups: Cgroups {
                kind,
                controllers: controllers.iter().map(ToString::to_string).collect(),
                writable,
            },
            ..facts
        };
        let all = ["cpu", "memory", "pids"];
        let warns = |facts: Facts, fix| finds(&facts, "cgroups", Verdict::Warning, fix);
        warns(with(good(), Hierarchies::None, &[], false), "mount");
        warns(with(good(), Hierarchies::V1, &all, false), "writable");
        warns(with(good(), Hierarchies::V2, &["pids"], true), "enable cpu, memory and pids");
        warns(with(users(), Hierarchies::V2, &["memory", "pids"], true), "Delegate=");
        warns(with(users(), Hierarchies::V2, &all, false), "linger");
        warns(with(users(), Hierarchies::Hybrid, &all, false), "unified_cgroup_hierarchy");
    }

    #[test]
    fn missing_optional_feature_is_a_warning() {
        finds(&Facts { criu: None, ..good() }, "criu", Verdict::Warning, "install criu");
        finds(&Facts { seccomp: None, ..good() }, "seccomp", Verdict::Warning, "CONFIG_SECCOMP_FILTER");
        finds(
            &Facts { seccomp: Some("errno".into()), ..good() },
            "seccomp",
            Verdict::Warning,
            "newer kernel",
        );
        finds(&Facts { systemd: Some(Err("gone".into())), ..good() }, "systemd", Verdict::Warning, "dbus");
        finds(
            &Facts { systemd: Some(Err("gone".into())), ..users() },
            "systemd",
            Verdict::Warning,
            "XDG_RUNTIME_DIR",
        );
    }
}
