//! Shared helpers: profiles from JSON, calls to test with, and pseudo-random numbers.

use husk_seccomp::interpret::Data;
use husk_seccomp::{Abi, Action, Arch, Argument, Comparison, Condition, Flags, Machine, Profile, Rule};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Engines whose default profiles for an unprivileged container are tested. See `profiles/README.md`.
pub(crate) const ENGINES: [&str; 3] = ["docker", "podman", "containerd"];

/// Returns a machine with all ABIs that x86-64 kernels may run.
pub(crate) fn x86_64() -> Machine {
    Machine::new(Abi::X86_64)
}

/// Returns a machine with all ABIs that kernels of this architecture may run.
pub(crate) fn native() -> Machine {
    Machine::new(if cfg!(target_arch = "x86_64") { Abi::X86_64 } else { Abi::Aarch64 })
}

/// Reads an engine's profile.
pub(crate) fn profile_of(engine: &str) -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/profiles/{engine}.json"));
    profile_from(&serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
}

/// Parses `linux.seccomp`.
pub(crate) fn profile_from(json: &Value) -> Profile {
    Profile {
        default_action: action(&json["defaultAction"], &json["defaultErrnoRet"]),
        architectures: list(&json["architectures"]).map(|arch| Arch::from_oci(text(arch)).unwrap()).collect(),
        flags: json.get("flags").map_or_else(Flags::default, |flags| {
            list(flags).fold(Flags::NONE, |flags, flag| flags | Flags::from_oci(text(flag)).unwrap())
        }),
        rules: list(&json["syscalls"]).map(rule).collect(),
    }
}

fn rule(json: &Value) -> Rule {
    Rule {
        names: list(&json["names"]).map(|name| text(name).to_owned()).collect(),
        action: action(&json["action"], &json["errnoRet"]),
        conditions: list(&json["args"]).map(condition).collect(),
    }
}

fn condition(json: &Value) -> Condition {
    let number = |name: &str| json[name].as_u64().unwrap_or(0);
    let comparison = Comparison::from_oci(text(&json["op"]), number("value"), number("valueTwo"));
    Condition {
        argument: Argument::new(number("index").try_into().unwrap()).unwrap(),
        comparison: comparison.unwrap(),
    }
}

fn action(name: &Value, errno: &Value) -> Action {
    Action::from_oci(text(name), errno.as_u64().map(|errno| errno.try_into().unwrap())).unwrap()
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn text(json: &Value) -> &str {
    json.as_str().unwrap()
}

/// Returns values on both sides of every border of a comparison, in both halves.
pub(crate) fn values(comparison: Comparison) -> Vec<u64> {
    let (mask, value) = match comparison {
        Comparison::NotEqual(value)
        | Comparison::Less(value)
        | Comparison::LessOrEqual(value)
        | Comparison::Equal(value)
        | Comparison::GreaterOrEqual(value)
        | Comparison::Greater(value) => (u64::MAX, value),
        Comparison::MaskedEqual { mask, value } => (mask, value & mask),
    };
    let high = 1 << 32;
    let mut values = vec![
        value,
        value.wrapping_sub(1),
        value.wrapping_add(1),
        value.wrapping_sub(high),
        value.wrapping_add(high),
        value ^ 1,
        value ^ (1 << 31),
        value ^ (1 << 63),
        value & 0xffff_ffff,
        value | !0xffff_ffff,
        value >> 32 << 32,
        value | 0xffff_ffff,
        value | !mask,
        (value | !mask) ^ (mask & mask.wrapping_neg()),
        !value,
    ];
    values.extend([0, 1, u64::MAX]);
    values.sort_unstable();
    values.dedup();
    values
}

/// Returns arguments at all borders of a call's conditions. Takes all combinations of the interesting values if
/// there are few, and random ones otherwise.
pub(crate) fn arguments(conditions: &[Condition], random: &mut Random) -> Vec<[u64; 6]> {
    const MOST: usize = 600;
    let mut interesting: [Vec<u64>; 6] = Default::default();
    for condition in conditions {
        interesting[usize::from(condition.argument.index())].extend(values(condition.comparison));
    }
    for values in &mut interesting {
        values.sort_unstable();
        values.dedup();
    }
    let combinations = interesting.iter().map(|values| values.len().max(1)).product::<usize>();
    if combinations > MOST {
        return (0..MOST)
            .map(|_| {
                [0, 1, 2, 3, 4, 5].map(|argument: usize| match &interesting[argument][..] {
                    [] => random.next(),
                    values => *random.pick(values),
                })
            })
            .collect();
    }
    (0..combinations)
        .map(|mut index| {
            interesting.each_ref().map(|values| match &values[..] {
                [] => random.next(),
                values => {
                    let value = values[index % values.len()];
                    index /= values.len();
                    value
                }
            })
        })
        .collect()
}

/// Returns how many random profiles to try: `few` times `HUSK_ROUNDS` of the environment.
pub(crate) fn rounds(few: u64) -> u64 {
    let rounds = std::env::var("HUSK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    few * rounds.unwrap_or(1)
}

/// Returns the data of a call.
pub(crate) fn call(abi: Abi, number: u32, arguments: [u64; 6]) -> Data {
    Data { number, arch: abi.audit_arch(), instruction_pointer: 0x5555_5555_5000, arguments }
}

/// Marsaglia's xorshift generator, with the same numbers in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| {
            random.next();
        });
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Environment variable: a directory of compiled oracles, for a machine that has no compiler.
const ORACLES: &str = "HUSK_ORACLES";

/// The entry point of the kernel through which an oracle makes calls.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Width {
    Word64,
    Word32,
}

/// Returns whether these calls need a 32-bit program. On x86-64 every program can make 32-bit calls.
pub(crate) fn is_narrow(width: Width) -> bool {
    cfg!(not(target_arch = "x86_64")) && width == Width::Word32
}

/// Returns an oracle, which is compiled if it is not in the directory of oracles, or the compiler's error.
pub(crate) fn oracle(name: &str, width: Width) -> Result<PathBuf, String> {
    let narrow = is_narrow(width);
    let program = if narrow { format!("{name}-32") } else { name.to_owned() };
    match std::env::var_os(ORACLES) {
        Some(oracles) => Ok(Path::new(&oracles).join(program)),
        None if narrow => compile("arm-linux-gnueabihf-gcc", name, &program, ["-static"]),
        None => compile("cc", name, &program, []),
    }
}

/// Compiles `tests/oracle/NAME.c`, or returns the compiler's error.
pub(crate) fn compile<'a>(
    compiler: &str,
    name: &str,
    program: &str,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/oracle/{name}.c"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let compiled = directory.join(format!("seccomp-{program}"));
    // Another run of the tests may compile the same program now.
    let new = directory.join(format!("seccomp-{program}-{}", std::process::id()));
    let result = Command::new(compiler).arg("-O2").arg("-o").arg(&new).arg(source).args(arguments).output();
    let result = result.map_err(|error| format!("{compiler}: {error}"))?;
    if !result.status.success() {
        return Err(String::from_utf8_lossy(&result.stderr).into_owned());
    }
    std::fs::rename(new, &compiled).map_err(|error| error.to_string())?;
    Ok(compiled)
}

/// Reports a skipped test, past the capture of output, so that it can be counted.
pub(crate) fn skipped(reason: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "skipped: {reason}").expect("standard error");
}
