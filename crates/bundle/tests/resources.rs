//! Checks how `linux.resources` is resolved, in a configuration and alone.

use husk_bundle::resources::parse;
use husk_cgroup::Resources;
use husk_cgroup::devices::{DevicePermissions, Rule, Type};
use husk_cgroup::resources::{BlockIo, Cpu, HugepageLimit, Memory, Network, Rdma, Throttle, WeightDevice};
use serde_json::{Value, json};
use std::path::Path;

fn parsed(resources: &Value) -> (Resources, Vec<String>) {
    let (resources, warnings) = parse(resources.to_string().as_bytes()).unwrap();
    (resources, warnings.iter().map(ToString::to_string).collect())
}

#[test]
fn every_field_is_read() {
    let everything = json!({
        "devices": [
            { "allow": false, "access": "rwm" },
            { "allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw" },
            { "allow": true, "type": "b", "major": -1, "access": "r" },
            { "allow": true, "type": "", "access": "m" }
        ],
        "memory": {
            "limit": 1, "reservation": 2, "swap": -1, "swappiness": 60, "disableOOMKiller": true,
            "checkBeforeUpdate": true
        },
        "cpu": {
            "shares": 1024, "quota": -1, "burst": 3, "period": 4, "realtimeRuntime": 5,
            "realtimePeriod": 6, "cpus": "0-1", "mems": "0", "idle": 1
        },
        "pids": { "limit": 0 },
        "blockIO": {
            "weight": 10, "leafWeight": 20,
            "weightDevice": [{ "major": 8, "minor": 0, "weight": 30, "leafWeight": 40 }],
            "throttleReadBpsDevice": [{ "major": 8, "minor": 0, "rate": 1 }],
            "throttleWriteBpsDevice": [{ "major": 8, "minor": 0, "rate": 2 }],
            "throttleReadIOPSDevice": [{ "major": 8, "minor": 0, "rate": 3 }],
            "throttleWriteIOPSDevice": [{ "major": 8, "minor": 0, "rate": 4 }]
        },
        "hugepageLimits": [{ "pageSize": "2MB", "limit": 18_446_744_073_709_551_615_u64 }],
        "network": { "classID": 5, "priorities": [{ "name": "eth0", "priority": 6 }] },
        "rdma": { "mlx5_1": { "hcaHandles": 3, "hcaObjects": 10_000 } },
        "unified": { "memory.high": "7" }
    });
    let rule = |allow, kind, numbers: (Option<u32>, Option<u32>), access: &str| Rule {
        allow,
        kind,
        major: numbers.0,
        minor: numbers.1,
        access: DevicePermissions::parse(access).unwrap(),
    };
    let throttle = |rate| vec![Throttle { major: 8, minor: 0, rate }];
    let expected = Resources {
        devices: vec![
            rule(false, Type::All, (None, None), "rwm"),
            rule(true, Type::Character, (Some(10), Some(229)), "rw"),
            rule(true, Type::Block, (None, None), "r"),
            rule(true, Type::All, (None, None), "m"),
        ],
        memory: Memory {
            limit: Some(1),
            reservation: Some(2),
            swap: Some(-1),
            swappiness: Some(60),
            disable_oom_killer: true,
            check_before_update: true,
        },
        cpu: Cpu {
            shares: Some(1024),
            quota: Some(-1),
            burst: Some(3),
            period: Some(4),
            realtime_runtime: Some(5),
            realtime_period: Some(6),
            cpus: Some("0-1".to_owned()),
            mems: Some("0".to_owned()),
            idle: Some(1),
        },
        pids_limit: Some(0),
        block_io: BlockIo {
            weight: Some(10),
            leaf_weight: Some(20),
            weight_devices: vec![WeightDevice {
                major: 8,
                minor: 0,
                weight: Some(30),
                leaf_weight: Some(40),
            }],
            read_bytes: throttle(1),
            write_bytes: throttle(2),
            read_operations: throttle(3),
            write_operations: throttle(4),
        },
        hugepage_limits: vec![HugepageLimit { page_size: "2MB".to_owned(), limit: u64::MAX }],
        network: Network { class_id: Some(5), priorities: vec![("eth0".to_owned(), 6)] },
        rdma: [("mlx5_1".to_owned(), Rdma { hca_handles: Some(3), hca_objects: Some(10_000) })].into(),
        unified: [("memory.high".to_owned(), "7".to_owned())].into(),
    };
    assert_eq!(parsed(&everything), (expected.clone(), vec![]));

    // The same resources as part of a configuration.
    let config = json!({
        "ociVersion": "1.3.0",
        "root": { "path": "rootfs" },
        "linux": { "resources": everything }
    });
    let (container, _) = husk_bundle::parse(config.to_string().as_bytes(), Path::new("/bundle")).unwrap();
    assert_eq!(container.resources, expected);
}

#[test]
fn unset_fields_stay_unset() {
    let nothing = (Resources::default(), vec![]);
    for empty in [json!({}), json!({ "pids": {}, "memory": null, "cpu": { "cpus": "" } })] {
        assert_eq!(parsed(&empty), nothing, "{empty}");
    }
    assert!(!nothing.0.has_limits());
    assert!(parsed(&json!({ "pids": { "limit": 0 } })).0.has_limits());
}

#[test]
fn field_dropped_by_kernels_is_a_warning() {
    let memory = json!({ "memory": { "kernel": 1, "kernelTCP": 2, "useHierarchy": true } });
    let expected = [
        "linux.resources.memory.kernel: is ignored: current kernels no longer support it",
        "linux.resources.memory.kernelTCP: is ignored: current kernels no longer support it",
    ];
    assert_eq!(parsed(&memory).1, expected);
}

#[test]
fn each_refusal_names_its_field() {
    let device = |device: Value| json!({ "devices": [device] });
    let hugepages = |limit: Value| json!({ "hugepageLimits": [limit] });
    let table = [
        (device(json!({ "allow": true })), "linux.resources.devices[0].access: is empty"),
        (device(json!({ "access": "rx" })), "linux.resources.devices[0].access: \"rx\" is unknown"),
        (device(json!({ "access": "r", "type": "p" })), "linux.resources.devices[0].type: \"p\" is unknown"),
        (
            device(json!({ "access": "r", "major": -2 })),
            "linux.resources.devices[0].major: -2 is out of range",
        ),
        (
            json!({ "pids": { "limit": "many" } }),
            "linux.resources.pids.limit: must be a whole number, not \"",
        ),
        (
            json!({ "memory": { "limit": "1g" } }),
            "linux.resources.memory.limit: must be a whole number, not \"",
        ),
        (hugepages(json!({ "limit": 1 })), "linux.resources.hugepageLimits[0].pageSize: is missing"),
        (
            hugepages(json!({ "pageSize": "../2MB", "limit": 1 })),
            "linux.resources.hugepageLimits[0].pageSize: \"../2MB\" is unknown",
        ),
        (json!([]), "linux.resources: is not an object"),
    ];
    for (resources, message) in table {
        let found = parse(resources.to_string().as_bytes()).unwrap_err().to_string();
        assert!(found.starts_with(message), "{found}\n{message}");
    }
    assert!(parse(b"{").unwrap_err().to_string().starts_with("linux.resources: EOF"));
}
