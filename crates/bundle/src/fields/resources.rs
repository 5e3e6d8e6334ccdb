//! Resolves `linux.resources`, as part of a configuration or alone for an update.

use crate::error::{Error, ErrorKind, Field, Warning};
use crate::json::{tree, typed};
use husk_cgroup::Resources;
use husk_cgroup::devices::{DevicePermissions, Rule, Type};
use husk_cgroup::resources::{BlockIo, Cpu, HugepageLimit, Memory, Network, Rdma, Throttle, WeightDevice};
use oci_spec::runtime::{self as oci, LinuxDeviceType};
use serde_json::{Map, Value, json};

/// The field of a configuration that contains the resources.
pub(crate) const FIELD: &str = "linux.resources";

/// Reads resources that are not part of a configuration. Absent values stay unset.
///
/// # Errors
///
/// Fails if the bytes are not JSON, or ask for something that no machine can do.
pub fn parse(bytes: &[u8]) -> Result<(Resources, Vec<Warning>), Error> {
    let field = Field::new(FIELD);
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| field.error(ErrorKind::Json(error.to_string())))?;
    let mut warnings = Vec::new();
    // Wraps the value in its usual parents, so that errors and warnings name the field.
    let mut config = json!({ "linux": { "resources": value } });
    tree::normalize(&mut config, &mut warnings)?;
    let mut value = config.pointer_mut("/linux/resources").map(Value::take).unwrap_or_default();
    let extra = take(&mut value)?;
    let resources: oci::LinuxResources = typed::read(value, &field)?;
    let resources = resolve(&resources, extra, &mut warnings)?;
    Ok((resources, warnings))
}

/// The parts of resources that oci-spec cannot read.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// `pids.limit`; oci-spec cannot represent its absence. 0 is a limit.
    pub(crate) pids_limit: Option<i64>,
    /// `hugepageLimits`, of which oci-spec reads only half the range.
    hugepage_limits: Vec<HugepageLimit>,
}

/// Removes these parts from the JSON and reads them.
pub(crate) fn take(resources: &mut Value) -> Result<Extra, Error> {
    let field = Field::new(FIELD);
    let Some(resources) = resources.as_object_mut() else {
        // serde would accept a list of the members in order.
        return Err(field.error(ErrorKind::Json("is not an object".to_owned())));
    };
    let mut extra = Extra::default();
    for device in resources.get_mut("devices").and_then(Value::as_array_mut).into_iter().flatten() {
        // Some engines write Go's zero value.
        if let Some(device) = device.as_object_mut().filter(|device| device.get("type") == Some(&"".into())) {
            device.remove("type");
        }
    }
    if let Some(pids) = resources.remove("pids") {
        let field = field.key("pids").key("limit");
        extra.pids_limit = pids.get("limit").map(|limit| typed::read(limit.clone(), &field)).transpose()?;
    }
    let field = field.key("hugepageLimits");
    let limits: Vec<Map<String, Value>> = match resources.remove("hugepageLimits") {
        None => Vec::new(),
        Some(limits) => typed::read(limits, &field)?,
    };
    for (index, limit) in limits.iter().enumerate() {
        let field = field.index(index);
        let member = |key| limit.get(key).ok_or_else(|| field.key(key).error(ErrorKind::Missing));
        let page_size: String = typed::read(member("pageSize")?.clone(), &field.key("pageSize"))?;
        // The size becomes part of a file name.
        if page_size.is_empty() || !page_size.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(field.key("pageSize").error(ErrorKind::Unknown(page_size)));
        }
        let limit = typed::read(member("limit")?.clone(), &field.key("limit"))?;
        extra.hugepage_limits.push(HugepageLimit { page_size, limit });
    }
    Ok(extra)
}

/// Resolves resources, looking up all names.
pub(crate) fn resolve(
    resources: &oci::LinuxResources,
    extra: Extra,
    warnings: &mut Vec<Warning>,
) -> Result<Resources, Error> {
    let field = Field::new(FIELD);
    let memory = resources.memory().as_ref();
    if let Some(memory) = memory {
        warn_of_memory(memory, &field.key("memory"), warnings);
    }
    Ok(Resources {
        devices: devices(resources.devices().as_deref().unwrap_or_default(), &field.key("devices"))?,
        memory: memory.map(self::memory).unwrap_or_default(),
        cpu: resources.cpu().as_ref().map(cpu).unwrap_or_default(),
        pids_limit: extra.pids_limit,
        block_io: resources.block_io().as_ref().map(block_io).unwrap_or_default(),
        hugepage_limits: extra.hugepage_limits,
        network: resources.network().as_ref().map(network).unwrap_or_default(),
        rdma: resources
            .rdma()
            .iter()
            .flatten()
            .map(|(device, limits)| (device.clone(), rdma(limits)))
            .collect(),
        unified: resources.unified().clone().unwrap_or_default().into_iter().collect(),
    })
}

fn devices(devices: &[oci::LinuxDeviceCgroup], field: &Field) -> Result<Vec<Rule>, Error> {
    let devices = devices.iter().enumerate();
    devices.map(|(index, device)| rule(device, &field.index(index))).collect()
}

fn rule(device: &oci::LinuxDeviceCgroup, field: &Field) -> Result<Rule, Error> {
    let kind = match device.typ() {
        None | Some(LinuxDeviceType::A) => Type::All,
        Some(LinuxDeviceType::B) => Type::Block,
        Some(LinuxDeviceType::C) => Type::Character,
        Some(other) => return Err(field.key("type").error(ErrorKind::Unknown(other.as_str().to_owned()))),
    };
    let number = |number: Option<i64>, key| match number {
        // Engines without a null value write -1 for "any".
        None | Some(-1) => Ok(None),
        Some(number) => match u32::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(field.key(key).error(ErrorKind::Range(number.into()))),
        },
    };
    let letters = device.access().as_deref().unwrap_or_default();
    let access = field.key("access");
    if letters.is_empty() {
        return Err(access.error(ErrorKind::Empty));
    }
    // `a` is the letter of a type that means all of them. It may appear here and has no effect, as in runc.
    let known = letters.replace('a', "");
    Ok(Rule {
        allow: device.allow(),
        kind,
        major: number(device.major(), "major")?,
        minor: number(device.minor(), "minor")?,
        access: DevicePermissions::parse(&known)
            .ok_or_else(|| access.error(ErrorKind::Unknown(letters.to_owned())))?,
    })
}

/// Warns about settings that kernels no longer have, or that have only one value in cgroup v2.
fn warn_of_memory(memory: &oci::LinuxMemory, field: &Field, warnings: &mut Vec<Warning>) {
    let asked = [
        ("kernel", memory.kernel().is_some()),
        ("kernelTCP", memory.kernel_tcp().is_some()),
        ("useHierarchy", memory.use_hierarchy() == Some(false)),
    ];
    for (key, _) in asked.into_iter().filter(|(_, asked)| *asked) {
        let text = "is ignored: current kernels no longer support it".to_owned();
        warnings.push(Warning::new(field.key(key), text));
    }
}

fn memory(memory: &oci::LinuxMemory) -> Memory {
    Memory {
        limit: memory.limit(),
        reservation: memory.reservation(),
        swap: memory.swap(),
        swappiness: memory.swappiness(),
        disable_oom_killer: memory.disable_oom_killer() == Some(true),
        check_before_update: memory.check_before_update() == Some(true),
    }
}

fn cpu(cpu: &oci::LinuxCpu) -> Cpu {
    Cpu {
        shares: cpu.shares(),
        quota: cpu.quota(),
        period: cpu.period(),
        burst: cpu.burst(),
        idle: cpu.idle(),
        realtime_runtime: cpu.realtime_runtime(),
        realtime_period: cpu.realtime_period(),
        cpus: cpu.cpus().clone().filter(|cpus| !cpus.is_empty()),
        mems: cpu.mems().clone().filter(|mems| !mems.is_empty()),
    }
}

fn block_io(block_io: &oci::LinuxBlockIo) -> BlockIo {
    let throttles = |devices: &Option<Vec<oci::LinuxThrottleDevice>>| {
        let devices = devices.iter().flatten();
        devices
            .map(|device| Throttle { major: device.major(), minor: device.minor(), rate: device.rate() })
            .collect()
    };
    let weights = block_io.weight_device().iter().flatten().map(|device| WeightDevice {
        major: device.major(),
        minor: device.minor(),
        weight: device.weight(),
        leaf_weight: device.leaf_weight(),
    });
    BlockIo {
        weight: block_io.weight(),
        leaf_weight: block_io.leaf_weight(),
        weight_devices: weights.collect(),
        read_bytes: throttles(block_io.throttle_read_bps_device()),
        write_bytes: throttles(block_io.throttle_write_bps_device()),
        read_operations: throttles(block_io.throttle_read_iops_device()),
        write_operations: throttles(block_io.throttle_write_iops_device()),
    }
}

fn network(network: &oci::LinuxNetwork) -> Network {
    let priorities = network.priorities().iter().flatten();
    Network {
        class_id: network.class_id(),
        priorities: priorities.map(|each| (each.name().clone(), each.priority())).collect(),
    }
}

fn rdma(limits: &oci::LinuxRdma) -> Rdma {
    Rdma { hca_handles: limits.hca_handles(), hca_objects: limits.hca_objects() }
}
