//! Converts resources to properties of a unit (systemd.resource-control(5)).

use super::unit::Unit;
use super::value::Value;
use crate::devices::{DevicePermissions, Rule, Type, flatten};
use crate::error::SystemdError as Error;
use crate::resources::{Cpu, Resources};
use crate::settings::convert::{cpu_weight, swap_alone};

/// A property of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    pub name: String,
    pub value: Value,
}

impl Property {
    pub(super) fn new(name: &str, value: Value) -> Self {
        Self { name: name.to_owned(), value }
    }
}

/// Encodes properties as an argument of methods.
pub(super) fn array(properties: &[Property]) -> Value {
    let structure = |property: &Property| {
        let value = Value::Variant(Box::new(property.value.clone()));
        Value::Struct(vec![Value::text(property.name.clone()), value])
    };
    Value::Array("(sv)".to_owned(), properties.iter().map(structure).collect())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// The first version with a period for CPU quotas.
    const QUOTA_PERIOD: Self = Self(242);
    /// The first version with properties for CPUs and memory nodes.
    const CPUSET: Self = Self(244);
    /// The first version that accepts device numbers without a device node.
    const DEVICE_NUMBERS: Self = Self(240);
    /// The first version with a `CPUWeight` of 0, for an idle unit.
    const IDLE: Self = Self(252);
    /// The first version with `OOMPolicy` for scopes.
    const OOM_POLICY: Self = Self(253);

    /// Parses the number from a text such as `257.4-1` or `v254`; 0 if there is none.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let text = text.trim_start_matches(['"', 'v']);
        let digits = text.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
        Self(digits.parse().unwrap_or(0))
    }
}

/// The host's cgroup version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// A hierarchy for each controller.
    V1,
    /// A single hierarchy.
    V2,
}

const NO_LIMIT: Value = Value::U64(u64::MAX);

/// Returns the properties that start a unit. `annotations` are properties from the configuration's annotations.
///
/// # Errors
///
/// If a value has no counterpart in systemd.
pub fn start(
    unit: &Unit,
    pid: Option<u32>,
    hierarchy: Hierarchy,
    version: Version,
    resources: &Resources,
    annotations: &[Property],
) -> Result<Vec<Property>, Error> {
    let mut properties =
        vec![Property::new("Description", Value::text(format!("husk container {}", unit.name())))];
    let slice = unit.slice().to_owned();
    if unit.is_slice() {
        let wants = vec![Value::Text(slice)];
        properties.push(Property::new("Wants", Value::Array("s".to_owned(), wants)));
    } else {
        properties.push(Property::new("Slice", Value::Text(slice)));
        properties.push(Property::new("Delegate", Value::Bool(true)));
        // Otherwise systemd keeps a failed unit, for example after an OOM kill, and its name stays taken.
        properties.push(Property::new("CollectMode", Value::text("inactive-or-failed")));
    }
    if let Some(pid) = pid {
        properties.push(Property::new("PIDs", Value::Array("u".to_owned(), vec![Value::U32(pid)])));
    }
    let io = if hierarchy == Hierarchy::V1 { "BlockIOAccounting" } else { "IOAccounting" };
    for name in ["MemoryAccounting", "CPUAccounting", io, "TasksAccounting"] {
        properties.push(Property::new(name, Value::Bool(true)));
    }
    // Otherwise systemd stops the container early at shutdown, and orders it before other units.
    properties.push(Property::new("DefaultDependencies", Value::Bool(false)));
    properties.extend(devices(&resources.devices, version));
    properties.extend(match hierarchy {
        Hierarchy::V1 => resources_v1(resources, version)?,
        Hierarchy::V2 => resources_v2(resources, version)?,
    });
    if let Some(group) = resources.unified.get("memory.oom.group").filter(|_| version >= Version::OOM_POLICY)
    {
        let policy = match group.trim() {
            "0" => "continue",
            "1" => "kill",
            _ => return Err(unified_error("memory.oom.group", group)),
        };
        properties.push(Property::new("OOMPolicy", Value::text(policy)));
    }
    properties.extend(annotations.iter().cloned());
    Ok(properties)
}

/// Converts resources, except device rules, to properties for version 2. Settings that this systemd has no
/// property for must be written to the cgroup's files.
///
/// # Errors
///
/// If a value has no counterpart in systemd.
pub fn resources_v2(resources: &Resources, version: Version) -> Result<Vec<Property>, Error> {
    let mut properties = Vec::new();
    let mut push = |name, value| properties.push(Property::new(name, value));
    let memory = &resources.memory;
    let said = |bytes: Option<i64>| bytes.filter(|bytes| *bytes != 0);
    if let Some(limit) = said(memory.limit) {
        push("MemoryMax", bytes(limit));
    }
    if let Some(reservation) = said(memory.reservation) {
        push("MemoryLow", bytes(reservation));
    }
    let swap = swap_alone(memory.limit, memory.swap);
    let swap = swap.map_err(|error| field_error(error, "linux.resources.memory.swap"))?;
    if let Some(swap) = swap {
        push("MemorySwapMax", bytes(swap));
    }
    let idle = resources.cpu.idle == Some(1) && version >= Version::IDLE;
    if idle {
        push("CPUWeight", Value::U64(0));
    } else if let Some(shares) = resources.cpu.shares.filter(|shares| *shares != 0) {
        push("CPUWeight", Value::U64(cpu_weight(shares)));
    }
    let mut rest = Vec::new();
    quota(resources.cpu.quota.unwrap_or(0), resources.cpu.period.unwrap_or(0), version, &mut rest);
    tasks(resources.pids_limit, &mut rest);
    cpuset(&resources.cpu, version, &mut rest)?;
    for (file, value) in &resources.unified {
        unified(file, value.trim(), resources, version, &mut rest)?;
    }
    properties.extend(rest);
    Ok(properties)
}

/// Converts resources, except device rules, to properties for version 1.
///
/// # Errors
///
/// If a value has no counterpart in systemd.
pub fn resources_v1(resources: &Resources, version: Version) -> Result<Vec<Property>, Error> {
    let mut properties = Vec::new();
    let mut push = |name, value| properties.push(Property::new(name, value));
    if let Some(limit) = resources.memory.limit.filter(|limit| *limit != 0) {
        push("MemoryLimit", bytes(limit));
    }
    if let Some(shares) = resources.cpu.shares.filter(|shares| *shares != 0) {
        push("CPUShares", Value::U64(shares));
    }
    if let Some(weight) = resources.block_io.weight.filter(|weight| *weight != 0) {
        push("BlockIOWeight", Value::U64(weight.into()));
    }
    quota(resources.cpu.quota.unwrap_or(0), resources.cpu.period.unwrap_or(0), version, &mut properties);
    tasks(resources.pids_limit, &mut properties);
    cpuset(&resources.cpu, version, &mut properties)?;
    Ok(properties)
}

/// Returns the resources with the CPU quota rounded as systemd rounds it. Otherwise the value in the file would
/// alternate between ours and systemd's.
#[must_use]
pub fn aligned(resources: &Resources) -> Resources {
    let mut resources = resources.clone();
    if let Some(quota) = resources.cpu.quota.filter(|quota| *quota > 0) {
        let period = resources.cpu.period.filter(|period| *period != 0).unwrap_or(PERIOD);
        let per_second = i128::from(quota_per_second(quota, period));
        let quota = per_second * i128::from(period) / 1_000_000;
        resources.cpu.quota = Some(i64::try_from(quota).unwrap_or(i64::MAX));
    }
    resources
}

/// The default period of a quota, in microseconds.
const PERIOD: u64 = 100_000;

/// Returns the quota in microseconds per second, rounded up to a whole percent. Systemd counts in percents, and
/// a quota below one would become zero.
fn quota_per_second(quota: i64, period: u64) -> u64 {
    const PERCENT: u128 = 10_000;
    let per_second = u128::from(quota.unsigned_abs()) * 1_000_000 / u128::from(period);
    u64::try_from(per_second.div_ceil(PERCENT) * PERCENT).unwrap_or(u64::MAX)
}

fn quota(quota: i64, period: u64, version: Version, properties: &mut Vec<Property>) {
    if period != 0 && version >= Version::QUOTA_PERIOD {
        properties.push(Property::new("CPUQuotaPeriodUSec", Value::U64(period)));
    }
    if quota != 0 || period != 0 {
        let period = if period == 0 { PERIOD } else { period };
        let value = if quota > 0 { Value::U64(quota_per_second(quota, period)) } else { NO_LIMIT };
        properties.push(Property::new("CPUQuotaPerSecUSec", value));
    }
}

fn tasks(limit: Option<i64>, properties: &mut Vec<Property>) {
    let value = match limit {
        None => return,
        // Systemd rejects zero.
        Some(0) => Value::U64(1),
        Some(limit) => u64::try_from(limit).map_or(NO_LIMIT, Value::U64),
    };
    properties.push(Property::new("TasksMax", value));
}

fn cpuset(cpu: &Cpu, version: Version, properties: &mut Vec<Property>) -> Result<(), Error> {
    if version < Version::CPUSET {
        return Ok(());
    }
    let lists = [
        ("AllowedCPUs", "linux.resources.cpu.cpus", &cpu.cpus),
        ("AllowedMemoryNodes", "linux.resources.cpu.mems", &cpu.mems),
    ];
    for (name, field, list) in lists {
        if let Some(list) = list.as_deref().filter(|list| !list.is_empty()) {
            let reason = || format!("{list:?} is not a list of numbers");
            let bits =
                bits(list).ok_or_else(|| Error::Field { field: field.to_owned(), reason: reason() })?;
            properties.push(Property::new(name, bits));
        }
    }
    Ok(())
}

/// Converts a list of numbers such as `0-2,7` to a bit mask.
fn bits(list: &str) -> Option<Value> {
    /// More than any machine has.
    const MOST: usize = 1 << 16;
    let mut bytes: Vec<u8> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        bytes.resize(bytes.len().max(last / 8 + 1), 0);
        for number in first..=last {
            *bytes.get_mut(number / 8)? |= 1 << (number % 8);
        }
    }
    let bytes = bytes.into_iter().map(Value::Byte).collect::<Vec<_>>();
    (!bytes.is_empty()).then(|| Value::Array("y".to_owned(), bytes))
}

/// Converts a `unified` entry, if systemd has a property for the file.
fn unified(
    file: &str,
    value: &str,
    resources: &Resources,
    version: Version,
    properties: &mut Vec<Property>,
) -> Result<(), Error> {
    crate::settings::v2::unified_field(file)
        .map_err(|error| field_error(error, "linux.resources.unified"))?;
    let wrong = || unified_error(file, value);
    let number = || match value {
        "max" => Ok(NO_LIMIT),
        number => number.parse().map(Value::U64).map_err(|_| wrong()),
    };
    let is_idle = |value: &str| value.trim() == "1" && version >= Version::IDLE;
    let name = match file {
        "cpu.idle" => {
            if is_idle(value) {
                properties.push(Property::new("CPUWeight", Value::U64(0)));
            }
            return Ok(());
        }
        "cpu.max" => {
            let mut words = value.split_whitespace();
            let (quota, period) = match (words.next(), words.next(), words.next()) {
                (Some(quota), None, None) => (quota, PERIOD),
                (Some(quota), Some(period), None) => (quota, period.parse().map_err(|_| wrong())?),
                _ => return Err(wrong()),
            };
            let quota = if quota == "max" { 0 } else { quota.parse().map_err(|_| wrong())? };
            self::quota(quota, period, version, properties);
            return Ok(());
        }
        // An idle group has no weight.
        "cpu.weight" if resources.unified.get("cpu.idle").is_some_and(|idle| is_idle(idle)) => return Ok(()),
        "cpu.weight" => "CPUWeight",
        "cpuset.cpus" | "cpuset.mems" => {
            let name = if file == "cpuset.cpus" { "AllowedCPUs" } else { "AllowedMemoryNodes" };
            let bits = bits(value).ok_or_else(wrong)?;
            if version >= Version::CPUSET {
                properties.push(Property::new(name, bits));
            }
            return Ok(());
        }
        "memory.high" => "MemoryHigh",
        "memory.low" => "MemoryLow",
        "memory.min" => "MemoryMin",
        "memory.max" => "MemoryMax",
        "memory.swap.max" => "MemorySwapMax",
        "pids.max" if value == "0" => {
            properties.push(Property::new("TasksMax", Value::U64(1)));
            return Ok(());
        }
        "pids.max" => "TasksMax",
        // husk writes this setting to its file instead.
        _ => return Ok(()),
    };
    properties.push(Property::new(name, number()?));
    Ok(())
}

/// Converts an error to one of systemd's; `field` is used if the error does not name one.
fn field_error(error: crate::Error, field: &str) -> Error {
    match error {
        crate::Error::Invalid { field, reason } => {
            Error::Field { field: field.into_owned(), reason: reason.into_owned() }
        }
        other => Error::Field { field: field.to_owned(), reason: other.to_string() },
    }
}

fn unified_error(file: &str, value: &str) -> Error {
    let field = format!("linux.resources.unified.{file}");
    Error::Field { field, reason: format!("{value:?} is no value of it") }
}

/// Converts bytes; a negative number means unlimited.
fn bytes(bytes: i64) -> Value {
    u64::try_from(bytes).map_or(NO_LIMIT, Value::U64)
}

/// Converts device rules. If systemd cannot express them, it gets none, and our own device filter applies them.
/// With several filters, each can only deny more.
fn devices(rules: &[Rule], version: Version) -> Vec<Property> {
    let policy = |policy, allow| {
        let allow = Value::Array("(ss)".to_owned(), allow);
        vec![Property::new("DeviceAllow", allow), Property::new("DevicePolicy", Value::text(policy))]
    };
    match allowed(rules, version) {
        Some(allow) => {
            // An empty list first, because new entries are added to the old ones.
            let mut properties = policy("strict", Vec::new());
            properties.push(Property::new("DeviceAllow", Value::Array("(ss)".to_owned(), allow)));
            properties
        }
        None => policy("auto", Vec::new()),
    }
}

/// Returns the entries of `DeviceAllow`; `None` if the default is to allow or systemd cannot express a rule.
fn allowed(rules: &[Rule], version: Version) -> Option<Vec<Value>> {
    let (default, exceptions) = flatten(rules).ok()?;
    if default || version < Version::DEVICE_NUMBERS {
        return None;
    }
    let exceptions = exceptions.into_iter().map(|((kind, major, minor), access): (_, DevicePermissions)| {
        let kind = if kind == Type::Block { "block" } else { "char" };
        let device = match (major, minor) {
            (None, None) => format!("{kind}-*"),
            (Some(major), None) => format!("{kind}-{major}"),
            (Some(major), Some(minor)) => format!("/dev/{kind}/{major}:{minor}"),
            (None, Some(_)) => return None,
        };
        Some(Value::Struct(vec![Value::Text(device), Value::text(access.to_string())]))
    });
    exceptions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Memory;

    fn names(properties: &[Property]) -> Vec<(&str, &Value)> {
        properties.iter().map(|property| (property.name.as_str(), &property.value)).collect()
    }

    const NEW: Version = Version(257);

    #[test]
    fn version_number_is_found_in_its_text() {
        for (text, version) in [("257.4-1", 257), ("v254", 254), ("\"249.11", 249), ("none", 0)] {
            assert_eq!(Version::parse(text), Version(version));
        }
    }

    #[test]
    fn resources_become_properties() {
        let resources = Resources {
            memory: Memory { limit: Some(100), swap: Some(300), reservation: Some(-1), ..Memory::default() },
            cpu: Cpu {
                shares: Some(1024),
                quota: Some(12_345),
                period: Some(50_000),
                cpus: Some("0-2,9".to_owned()),
                ..Cpu::default()
            },
            pids_limit: Some(0),
            ..Resources::default()
        };
        let bits = Value::Array("y".to_owned(), vec![Value::Byte(7), Value::Byte(2)]);
        let expected = [
            ("MemoryMax", &Value::U64(100)),
            ("MemoryLow", &NO_LIMIT),
            ("MemorySwapMax", &Value::U64(200)),
            ("CPUWeight", &Value::U64(100)),
            ("CPUQuotaPeriodUSec", &Value::U64(50_000)),
            ("CPUQuotaPerSecUSec", &Value::U64(250_000)),
            ("TasksMax", &Value::U64(1)),
            ("AllowedCPUs", &bits),
        ];
        assert_eq!(names(&resources_v2(&resources, NEW).unwrap()), expected);
        // An old systemd supports neither periods nor CPUs.
        let old = resources_v2(&resources, Version(239)).unwrap();
        assert!(
            old.iter()
                .all(|property| !["CPUQuotaPeriodUSec", "AllowedCPUs"].contains(&property.name.as_str()))
        );
        assert_eq!(aligned(&resources).cpu.quota, Some(12_500));
        let expected = [
            ("MemoryLimit", &Value::U64(100)),
            ("CPUShares", &Value::U64(1024)),
            ("CPUQuotaPerSecUSec", &Value::U64(250_000)),
            ("TasksMax", &Value::U64(1)),
        ];
        assert_eq!(names(&resources_v1(&resources, Version(239)).unwrap()), expected);
    }

    #[test]
    fn kernel_file_names_become_properties() {
        let unified = |pairs: &[(&str, &str)]| Resources {
            unified: pairs.iter().map(|(file, value)| ((*file).to_owned(), (*value).to_owned())).collect(),
            ..Resources::default()
        };
        let resources = unified(&[
            ("cpu.idle", "1"),
            ("cpu.max", "max 50000"),
            ("cpu.weight", "5"),
            ("cpuset.mems", "0"),
            ("memory.high", "7"),
            ("memory.max", "max"),
            ("misc.max", "x 1"),
            ("pids.max", "0"),
        ]);
        let bits = Value::Array("y".to_owned(), vec![Value::Byte(1)]);
        let expected = [
            ("CPUWeight", &Value::U64(0)),
            ("CPUQuotaPeriodUSec", &Value::U64(50_000)),
            ("CPUQuotaPerSecUSec", &NO_LIMIT),
            ("AllowedMemoryNodes", &bits),
            ("MemoryHigh", &Value::U64(7)),
            ("MemoryMax", &NO_LIMIT),
            ("TasksMax", &Value::U64(1)),
        ];
        assert_eq!(names(&resources_v2(&resources, NEW).unwrap()), expected);
        for (file, value) in
            [("memory.max", "lots"), ("cpu.max", "1 2 3"), ("cpuset.cpus", "3-1"), ("a/b", "")]
        {
            let error = resources_v2(&unified(&[(file, value)]), NEW).unwrap_err().to_string();
            assert!(error.starts_with(&format!("linux.resources.unified.{file}: ")), "{error}");
        }
    }

    #[test]
    fn devices_become_a_list_where_possible() {
        let rule = |allow, major, minor, access| Rule {
            allow,
            kind: Type::Character,
            major,
            minor,
            access: DevicePermissions::parse(access).unwrap(),
        };
        let rules = [
            rule(true, None, None, "m"),
            rule(true, Some(1), Some(3), "rw"),
            rule(true, Some(136), None, "rwm"),
        ];
        let entry =
            |device: &str, access: &str| Value::Struct(vec![Value::text(device), Value::text(access)]);
        let list = Value::Array(
            "(ss)".to_owned(),
            vec![entry("char-*", "m"), entry("/dev/char/1:3", "rw"), entry("char-136", "rwm")],
        );
        let properties = devices(&rules, NEW);
        assert_eq!(properties[1], Property::new("DevicePolicy", Value::text("strict")));
        assert_eq!(properties[2], Property::new("DeviceAllow", list));
        // Systemd cannot express `*:3`.
        let properties = devices(&[rule(true, None, Some(3), "r")], NEW);
        assert_eq!(properties[1], Property::new("DevicePolicy", Value::text("auto")));
    }

    #[test]
    fn scope_starts_with_all_properties() {
        let unit = Unit::new(Some("a.slice:b:c"), "id", super::super::Owner::Host).unwrap();
        let own = [Property::new("TimeoutStopUSec", Value::U64(1))];
        let resources = Resources {
            unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
            ..Resources::default()
        };
        let properties = start(&unit, Some(7), Hierarchy::V2, NEW, &resources, &own).unwrap();
        let found: Vec<&str> = properties.iter().map(|property| property.name.as_str()).collect();
        let expected = [
            "Description",
            "Slice",
            "Delegate",
            "CollectMode",
            "PIDs",
            "MemoryAccounting",
            "CPUAccounting",
            "IOAccounting",
            "TasksAccounting",
            "DefaultDependencies",
            "DeviceAllow",
            "DevicePolicy",
            "DeviceAllow",
            "OOMPolicy",
            "TimeoutStopUSec",
        ];
        assert_eq!(found, expected);
    }
}
