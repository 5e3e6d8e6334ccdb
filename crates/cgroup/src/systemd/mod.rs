//! Cgroups that systemd creates and removes, as transient units.
//!
//! A container's processes run in a scope. One D-Bus call asks systemd for it, with all properties. The caller
//! subscribes to job signals first, and then waits for the job to end. Settings that systemd has no property
//! for are written to the cgroup's files afterwards, as without systemd.
//!
//! Every wait has a deadline, and the container's process never waits for systemd.

mod annotations;
mod bus;
pub(crate) mod message;
mod properties;
mod unit;
mod value;

pub use annotations::{ANNOTATIONS, from_annotations};
pub use bus::{Address, Bus};
pub use properties::{
    Hierarchy, Property, Version, aligned, resources_v1, resources_v2, start as start_properties,
};
pub use unit::{Owner, Unit};
pub use value::Value;

pub use crate::error::{Malformed, SYSTEMD_PATIENCE as PATIENCE, SystemdError as Error};

/// A connection to systemd.
#[derive(Debug)]
pub struct Systemd {
    bus: Bus,
    version: Option<Version>,
}

impl Systemd {
    /// Connects to the host's systemd, or to the user's.
    ///
    /// # Errors
    ///
    /// If systemd is not running, or the bus rejects us.
    pub fn connect(owner: Owner) -> Result<Self, Error> {
        Bus::connect(&Address::find(owner)?).map(Self::over)
    }

    /// Uses an existing connection.
    #[must_use]
    pub const fn over(bus: Bus) -> Self {
        Self { bus, version: None }
    }

    /// Returns systemd's version, or 0 if it cannot be parsed.
    pub fn version(&mut self) -> Result<Version, Error> {
        if let Some(version) = self.version {
            return Ok(version);
        }
        let version = Version::parse(&self.bus.manager_property("Version")?);
        self.version = Some(version);
        Ok(version)
    }

    /// Returns the cgroup of the manager, which contains all its units. A user's manager is not at the root.
    pub fn control_group(&mut self) -> Result<String, Error> {
        self.bus.manager_property("ControlGroup")
    }

    /// Starts a transient unit, and returns when the job is done. Resets a failed unit of the same name first.
    /// A running unit of that name is an error: our processes would be outside all limits.
    ///
    /// # Errors
    ///
    /// If systemd rejects it, the job fails, or it takes longer than [`PATIENCE`].
    pub fn start(&mut self, unit: &Unit, properties: &[Property]) -> Result<(), Error> {
        match self.start_once(unit, properties) {
            Err(error) if error.is_unit_exists() => {
                self.reset_failed(unit)?;
                self.start_once(unit, properties)
            }
            started => started,
        }
    }

    fn start_once(&mut self, unit: &Unit, properties: &[Property]) -> Result<(), Error> {
        let body = vec![
            Value::text(unit.name()),
            Value::text("replace"),
            properties::array(properties),
            // Auxiliary units.
            Value::Array("(sa(sv))".to_owned(), Vec::new()),
        ];
        let ended = self.bus.job("StartTransientUnit", body);
        match ended {
            Ok(result) if result == "done" => Ok(()),
            Ok(result) => {
                self.reset_failed(unit)?;
                Err(Error::Job { unit: unit.name().to_owned(), result })
            }
            Err(error) => {
                if matches!(error, Error::Deadline { .. }) && self.reset_failed(unit).is_err() {
                    // Tolerated: the caller gets the error of the deadline.
                }
                Err(error)
            }
        }
    }

    /// Stops a unit, and returns when it is gone. Succeeds if the unit does not exist.
    ///
    /// # Errors
    ///
    /// If systemd rejects it or takes longer than [`PATIENCE`].
    pub fn stop(&mut self, unit: &Unit) -> Result<(), Error> {
        let body = vec![Value::text(unit.name()), Value::text("replace")];
        match self.bus.job("StopUnit", body) {
            Ok(_) => {}
            Err(error) if error.is_no_such_unit() => return Ok(()),
            Err(error) => return Err(error),
        }
        // Systemd keeps failed units for inspection, unless they are reset.
        self.reset_failed(unit)
    }

    /// Sets properties of a unit until the next reboot.
    pub fn set(&mut self, unit: &Unit, properties: &[Property]) -> Result<(), Error> {
        let body = vec![Value::text(unit.name()), Value::Bool(true), properties::array(properties)];
        self.bus.call("SetUnitProperties", body).map(drop)
    }

    /// Moves processes to the unit's cgroup, or to the cgroup `below` it.
    pub fn attach(&mut self, unit: &Unit, below: &str, pids: &[u32]) -> Result<(), Error> {
        let pids = pids.iter().copied().map(Value::U32).collect();
        let below = format!("/{}", crate::clean(below));
        let body = vec![Value::text(unit.name()), Value::Text(below), Value::Array("u".to_owned(), pids)];
        self.bus.call("AttachProcessesToUnit", body).map(drop)
    }

    /// Makes systemd forget that a unit has failed.
    fn reset_failed(&mut self, unit: &Unit) -> Result<(), Error> {
        match self.bus.call("ResetFailedUnit", vec![Value::text(unit.name())]) {
            Ok(_) => Ok(()),
            Err(error) if error.is_no_such_unit() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
