//! Tests device programs against the rules' meaning, and both against the kernel.

use crate::support::{V1, V2, need};
use husk_cgroup::devices::{
    DeviceAccess, DevicePermissions, DeviceProgram, Rule, Type, allows, built_in, compile, interpret,
};
use husk_cgroup::{Cgroup, Resources};
use husk_spawn::{Command, Stdio};
use rustix::fd::BorrowedFd;

/// An xorshift64 generator with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns one of a few numbers, so that rules overlap; `u32::MAX` is negative in the program.
    fn number(&mut self) -> u32 {
        [0, 1, 2, u32::MAX][usize::try_from(self.below(4)).unwrap()]
    }

    fn access(&mut self) -> DevicePermissions {
        DevicePermissions::from_bits(u8::try_from(self.below(7) + 1).unwrap())
    }

    fn rule(&mut self) -> Rule {
        let kind = [Type::All, Type::Block, Type::Character][usize::try_from(self.below(3)).unwrap()];
        let some = |random: &mut Self| (random.below(3) != 0).then(|| random.number());
        let (major, minor) = (some(self), some(self));
        let access = if self.below(3) == 0 { DevicePermissions::ALL } else { self.access() };
        Rule { allow: self.below(2) == 0, kind, major, minor, access }
    }
}

#[test]
fn compiled_program_decides_as_the_rules() {
    let random = &mut Random(0x2545_f491_4f6c_dd1d);
    let mut programs = 0;
    for _ in 0..3000 {
        let rules: Vec<Rule> = (0..random.below(9)).map(|_| random.rule()).collect();
        let program = compile(&rules).unwrap();
        for kind in [Type::Block, Type::Character] {
            for number in 0..16_u32 {
                let numbers = [0, 1, 2, u32::MAX];
                let (major, minor) = (numbers[(number / 4) as usize], numbers[(number % 4) as usize]);
                for bits in 0..8 {
                    let request =
                        DeviceAccess { kind, major, minor, access: DevicePermissions::from_bits(bits) };
                    let answer = match &program {
                        DeviceProgram::Everything => Some(true),
                        DeviceProgram::Instructions(program) => interpret::run(program, &request),
                    };
                    assert_eq!(answer, Some(allows(&rules, &request)), "{request:?} of {rules:?}");
                }
            }
        }
        programs += u32::from(matches!(program, DeviceProgram::Instructions(_)));
    }
    assert!(programs > 2000, "{programs} programs");
}

#[test]
fn rules_that_allow_everything_need_no_program() {
    let everything =
        Rule { allow: true, kind: Type::All, major: None, minor: None, access: DevicePermissions::ALL };
    let rules: Vec<Rule> = [everything].into_iter().chain(built_in()).collect();
    assert_eq!(compile(&rules).unwrap(), DeviceProgram::Everything);
    assert!(matches!(compile(&[]), Ok(DeviceProgram::Instructions(_))));
}

/// Returns whether a process in the cgroup can run the program without `EPERM`.
fn can(cgroup: &dyn Fn(&mut Command), program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    cgroup(&mut command);
    let null = || Stdio::null();
    // A denial shows in the error message for EPERM.
    let output =
        command.args(arguments).stdin(null()).stdout(null()).stderr(Stdio::piped()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() || words.contains("Operation not permitted"), "{words}");
    output.status.success()
}

fn started_in(cgroup: BorrowedFd<'_>) -> impl Fn(&mut Command) {
    let directory = cgroup.try_clone_to_owned().expect("a descriptor");
    move |command| {
        command.cgroup(directory.try_clone().expect("a descriptor"));
    }
}

const READ_ZERO: (&str, &[&str]) = ("head", &["-c1", "/dev/zero"]);
const READ_FULL: (&str, &[&str]) = ("head", &["-c1", "/dev/full"]);
const WRITE_ZERO: (&str, &[&str]) = ("dd", &["if=/dev/null", "of=/dev/zero", "status=none", "conv=notrunc"]);

fn character(allow: bool, minor: Option<u32>, access: &str) -> Rule {
    Rule {
        allow,
        kind: Type::Character,
        major: Some(1),
        minor,
        access: DevicePermissions::parse(access).unwrap(),
    }
}

#[test]
fn kernel_opens_devices_that_the_rules_allow() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(rustix::process::geteuid().is_root().then_some(()), "needs root");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    let it = started_in(cgroup.directory());
    let null = character(true, Some(3), "rw");
    cgroup.set_devices(&[null, character(true, Some(5), "r")]).unwrap();
    assert!(can(&it, READ_ZERO.0, READ_ZERO.1));
    assert!(!can(&it, WRITE_ZERO.0, WRITE_ZERO.1));
    assert!(!can(&it, READ_FULL.0, READ_FULL.1));
    // A hole in what an earlier rule allows. The new filter must replace the first one, which would still deny
    // the other device.
    cgroup.replace_devices(&[null, character(true, None, "rw"), character(false, Some(5), "r")]).unwrap();
    assert!(!can(&it, READ_ZERO.0, READ_ZERO.1));
    assert!(can(&it, WRITE_ZERO.0, WRITE_ZERO.1));
    assert!(can(&it, READ_FULL.0, READ_FULL.1));
    // The devices that runtimes provide.
    cgroup.replace_devices(&built_in()).unwrap();
    assert!(can(&it, READ_ZERO.0, READ_ZERO.1));
    cgroup.replace_devices(&[null]).unwrap();
    assert!(!can(&it, READ_ZERO.0, READ_ZERO.1));
    let everything =
        Rule { allow: true, kind: Type::All, major: None, minor: None, access: DevicePermissions::ALL };
    cgroup.replace_devices(&[everything]).unwrap();
    assert!(can(&it, READ_FULL.0, READ_FULL.1));
}

#[test]
fn filters_are_replaced_instead_of_added() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(rustix::process::geteuid().is_root().then_some(()), "needs root");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    // Two filters, as if another program had attached one: both must allow.
    cgroup.set_devices(&[character(true, None, "rw")]).unwrap();
    cgroup.set_devices(&[character(true, Some(3), "rw")]).unwrap();
    let it = started_in(cgroup.directory());
    assert!(!can(&it, READ_ZERO.0, READ_ZERO.1));
    // The kernel accepts 64 filters.
    for _ in 0..100 {
        cgroup.replace_devices(&[character(true, None, "rw")]).unwrap();
    }
    assert!(can(&it, READ_ZERO.0, READ_ZERO.1));
}

#[test]
fn version_1_opens_devices_that_the_rules_allow() {
    let v1 = need!(V1::new(), "needs cgroup version 1 and root");
    need!(v1.has("devices"), "needs the devices controller in version 1");
    let cgroup = v1.layout.create(&v1.place, &Resources::default()).unwrap();
    let rules =
        [character(true, Some(3), "rw"), character(true, Some(5), "rwm"), character(false, Some(5), "w")];
    cgroup.set_devices(&rules).unwrap();
    assert_eq!(v1.read("devices", "devices.list"), "c 1:3 rw\nc 1:5 rm");
    let Cgroup::V1(_) = &cgroup else { panic!("version 1") };
    let procs = v1.place.path("devices").unwrap().join("cgroup.procs");
    let script = |script: &str| format!("echo $$ >{} && {script}", procs.display());
    let nothing = |_: &mut Command| {};
    assert!(can(&nothing, "sh", &["-c", &script("head -c1 /dev/zero")]));
    assert!(!can(
        &nothing,
        "sh",
        &["-c", &script("exec dd if=/dev/null of=/dev/zero status=none conv=notrunc")]
    ));
    assert!(!can(&nothing, "sh", &["-c", &script("head -c1 /dev/full")]));
}
