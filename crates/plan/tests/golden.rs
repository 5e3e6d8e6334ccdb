//! Compares the plans of the example bundles with golden files, on machines described in this directory. `make
//! golden` rewrites the listings, and the diff is what gets reviewed.

mod machines;

use bumpalo::Bump;
use husk_bundle::Container;
use husk_plan::{Host, Invocation, create, places};
use machines::{v1_root, v2_root, v2_rootless};
use std::fs;
use std::path::Path;

#[track_caller]
fn agrees(example: &str, machine: &str, host: fn(&Container) -> Host) {
    let plan = |container: &Container, host: &Host| {
        create(container, host, &Invocation::default(), &Bump::new()).unwrap().to_string()
    };
    is_golden(example, &format!("plan-{machine}.txt"), host, plan);
}

#[track_caller]
fn is_golden(
    example: &str,
    name: &str,
    host: fn(&Container) -> Host,
    plan: impl Fn(&Container, &Host) -> String,
) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
    let config = fs::read(directory.join("config.json")).unwrap();
    // Pretends that the bundle is elsewhere: a listing must not depend on the path of this source tree.
    let (container, _) = husk_bundle::parse(&config, Path::new("/bundle")).unwrap();
    let found = plan(&container, &host(&container));

    let golden = directory.join(name);
    if std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&golden, &found).unwrap();
    }
    let wanted = fs::read_to_string(&golden).unwrap_or_default();
    for (line, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(found, wanted, "{}, line {}", golden.display(), line + 1);
    }
    assert_eq!(found.lines().count(), wanted.lines().count(), "{}", golden.display());
}

#[test]
fn hello_as_root() {
    agrees("hello", "v2-root", v2_root);
    agrees("hello", "v1-root", v1_root);
}

#[test]
fn hello_of_an_image() {
    let plan = |container: &Container, host: &Host| {
        let layers = ["0", "1"].map(|name| Path::new("/bundle/husk-layers").join(name));
        let container = Container { layers: layers.to_vec(), ..container.clone() };
        create(&container, host, &Invocation::default(), &Bump::new()).unwrap().to_string()
    };
    is_golden("hello", "plan-layers-v2-root.txt", v2_root, plan);
}

#[test]
fn volumes_in_a_user_namespace() {
    agrees("volumes", "v2-root", v2_root);
}

#[test]
fn hello_as_a_user() {
    agrees("rootless", "v2-user", v2_rootless);
}

#[test]
fn hooks_as_root() {
    agrees("hooks", "v2-root", v2_root);
}

#[test]
fn mount_points_for_restore() {
    let plan =
        |container: &Container, host: &Host| places(container, host, &Bump::new()).unwrap().to_string();
    is_golden("volumes", "places-v2-root.txt", v2_root, plan);
}
