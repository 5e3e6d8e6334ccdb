//! Checks network devices that are moved into a container.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// A veth pair on the host, deleted on drop.
struct Cable {
    name: String,
}

/// Runs `ip` and returns whether it succeeded.
fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).output().is_ok_and(|output| output.status.success())
}

impl Cable {
    /// Creates a pair with names that no other test uses. Returns `None` if `ip` fails.
    fn new(name: &str) -> Option<Self> {
        let name = format!("h{}{name}", std::process::id());
        let cable = Self { name };
        let peer = cable.peer();
        ip(&["link", "add", &cable.name, "type", "veth", "peer", "name", &peer]).then_some(cable)
    }

    fn peer(&self) -> String {
        format!("{}p", self.name)
    }

    fn exists(&self) -> bool {
        Path::new("/sys/class/net").join(&self.name).exists()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        ip(&["link", "del", &self.peer()]);
    }
}

fn with_devices(words: &str, devices: Value) -> Bundle {
    let sys = json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"] });
    Bundle::running(words).mounting(sys).with("/linux/netDevices", devices)
}

#[test]
fn device_of_the_host_moves_into_the_container_with_its_addresses() {
    need!(is_root(), "needs root to create network devices");
    let Some(cable) = Cable::new("a") else { return need!(false, "needs ip and veth") };
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    let name = &cable.name;
    assert!(ip(&["address", "add", "192.0.2.7/24", "dev", name]));
    // An address with host scope is not moved.
    assert!(ip(&["address", "add", "192.0.2.9/32", "scope", "host", "dev", name]));
    let has_ipv6 = has_ipv6 && ip(&["-6", "address", "add", "2001:db8::7/64", "dev", name, "nodad"]);
    assert!(ip(&["link", "set", name, "up"]));

    let runtime = Runtime::under_test();
    let bundle = with_devices("wait", json!({ (name.as_str()): { "name": "eth7" } }));
    runtime.create(&bundle).succeeds();
    assert!(!cable.exists(), "the device is still on the host");
    let state: Value = serde_json::from_str(&runtime.call("state", &["c"]).succeeds()).unwrap();
    let see = |file: &str| {
        let path = format!("/proc/{}/{file}", state["pid"]);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    assert!(see("net/dev").lines().any(|line| line.trim_start().starts_with("eth7:")), "{}", see("net/dev"));
    let addresses = see("net/fib_trie");
    assert!(addresses.contains("192.0.2.7") && !addresses.contains("192.0.2.9"), "{addresses}");
    // The route to its network exists only while the device is up.
    assert!(see("net/route").lines().any(|line| line.starts_with("eth7\t000200C0")), "{}", see("net/route"));
    need!(is_husk(), "runc sets the device down first, which removes its IPv6 addresses");
    if has_ipv6 {
        assert!(see("net/if_inet6").contains("20010db8000000000000000000000007"), "{}", see("net/if_inet6"));
    }
}

#[test]
fn program_finds_its_network_device() {
    need!(is_root(), "needs root to create network devices");
    let Some(cable) = Cable::new("b") else { return need!(false, "needs ip and veth") };
    let name = cable.name.as_str();
    let path = format!("cat /sys/class/net/{name}/operstate");
    // The device is up, but its peer is not.
    Runtime::under_test().run(&with_devices(&path, json!({ name: {} }))).prints("lowerlayerdown");
}

#[test]
fn device_that_cannot_be_moved_is_named() {
    need!(is_husk(), "runc's messages name no field");
    let runtime = Runtime::under_test();
    let refused = |devices: Value, message: &str| {
        runtime.run(&with_devices("exit 0", devices)).fails(1, message);
        assert!(runtime.is_empty());
    };
    refused(json!({ "a name": {} }), "linux.netDevices.a name: is not a valid name for a network device");
    refused(
        json!({ "eth0": { "name": ".." } }),
        "linux.netDevices.eth0.name: is not a valid name for a network",
    );
    refused(json!({ "sixteen-letters-": {} }), "linux.netDevices.sixteen-letters-: is not a valid name for");
    if !is_root() {
        refused(json!({ "eth0": {} }), "network devices are not supported for rootless containers");
        return need!(false, "needs root to create network devices");
    }
    refused(json!({ "nosuch0": {} }), "linux.netDevices.nosuch0: find the device: no such device");
    // A device whose new name is taken cannot be moved, and stays as it is.
    let Some(cable) = Cable::new("c") else { return need!(false, "needs ip and veth") };
    assert!(ip(&["link", "set", &cable.name, "up"]));
    refused(
        json!({ (cable.name.as_str()): { "name": "lo" } }),
        &format!("linux.netDevices.{}: name it in the container: file exists", cable.name),
    );
    let flags = std::fs::read_to_string(format!("/sys/class/net/{}/flags", cable.name)).unwrap();
    assert_eq!(
        u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap() & 1,
        1,
        "the device is down"
    );
    let bundle = with_devices("exit 0", json!({ "eth0": {} })).with(
        "/linux/namespaces",
        json!([{ "type": "mount" }, { "type": "pid" }, { "type": "ipc" }, { "type": "uts" }]),
    );
    runtime.run(&bundle).fails(1, "unable to move network devices without a NET namespace");
}
