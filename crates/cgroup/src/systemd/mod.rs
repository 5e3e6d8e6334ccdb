//! Cgroups that systemd makes, as transient units, and removes.
//!
//! A container's processes are in a scope. Systemd is asked for it over D-Bus, in one call with all
//! properties; whoever asks waits for the job to end, having asked to be told before asking for the
//! job. What systemd has no property for is written to the cgroup's files afterwards, as without it.
//!
//! Nothing here waits without an end, and the child is never made to wait for it.

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

/// Systemd, by one connection.
#[derive(Debug)]
pub struct Systemd {
    bus: Bus,
    version: Option<Version>,
}

impl Systemd {
    /// Connects to the host's systemd, or to that of the user.
    ///
    /// # Errors
    ///
    /// If there is none, or it refuses us.
    pub fn connect(owner: Owner) -> Result<Self, Error> {
        Bus::connect(&Address::find(owner)?).map(Self::over)
    }

    /// Uses a connection.
    #[must_use]
    pub const fn over(bus: Bus) -> Self {
        Self { bus, version: None }
    }

    /// Its version; the lowest there is if it does not say.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn version(&mut self) -> Result<Version, Error> {
        if let Some(version) = self.version {
            return Ok(version);
        }
        let version = Version::parse(&self.bus.manager_property("Version")?);
        self.version = Some(version);
        Ok(version)
    }

    /// The cgroup that the manager has for itself and all that it starts, which is not the top for a
    /// user's.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn control_group(&mut self) -> Result<String, Error> {
        self.bus.manager_property("ControlGroup")
    }

    /// Starts a transient unit, and returns when it is there. One that is left over in failure is
    /// forgotten first. One that runs is an error: our processes would be outside of all limits.
    ///
    /// # Errors
    ///
    /// If systemd refuses it or the job fails, or takes longer than [`PATIENCE`].
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
            // Units to be made on the way.
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
                    // Tolerated: that it took too long is what is told.
                }
                Err(error)
            }
        }
    }

    /// Stops a unit, and returns when it is gone. It is no error if there is none.
    ///
    /// # Errors
    ///
    /// If systemd refuses or takes longer than [`PATIENCE`].
    pub fn stop(&mut self, unit: &Unit) -> Result<(), Error> {
        let body = vec![Value::text(unit.name()), Value::text("replace")];
        match self.bus.job("StopUnit", body) {
            Ok(_) => {}
            Err(error) if error.is_no_such_unit() => return Ok(()),
            Err(error) => return Err(error),
        }
        // One that has failed would be kept for somebody to look at.
        self.reset_failed(unit)
    }

    /// Sets properties of a unit, until the machine is next booted.
    ///
    /// # Errors
    ///
    /// If systemd refuses them.
    pub fn set(&mut self, unit: &Unit, properties: &[Property]) -> Result<(), Error> {
        let body = vec![Value::text(unit.name()), Value::Bool(true), properties::array(properties)];
        self.bus.call("SetUnitProperties", body).map(drop)
    }

    /// Moves processes to the unit's cgroup, or to one below it.
    ///
    /// # Errors
    ///
    /// If systemd refuses.
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
