//! The on/off switch of a gateway that is used as a plugin. Switching off ends all runs, calls and connections. A gateway that is not a
//! plugin is always on.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::availability::AttachedServers;
use super::core::Core;
use super::ending::EndReason;
use super::{Agent, Gateway};
use crate::error::{Error, Result};
use crate::queue::queue_now;

/// The period between one switching on and the next switching off.
#[derive(Clone, Default)]
pub(super) struct ActivePeriod {
    /// Cancelled when the period ends.
    pub(super) ended: CancellationToken,
    /// The runs of the period. Switching off waits for them.
    pub(super) runs: TaskTracker,
}

enum State {
    /// The gateway is not a plugin.
    NoPlugin(ActivePeriod),
    On(ActivePeriod),
    Off,
}

type Turn = OwnedMutexGuard<()>;

pub(super) struct PluginSwitch {
    state: Mutex<State>,
    /// Locked while switching. The lock is fair: requests are served in the order in which they arrive.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Default for PluginSwitch {
    fn default() -> Self {
        Self { state: Mutex::new(State::NoPlugin(ActivePeriod::default())), turn: Arc::default() }
    }
}

impl PluginSwitch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the present on-period. Returns an error if the plugin is off.
    pub(super) fn period(&self) -> Result<ActivePeriod> {
        match &*self.state() {
            State::NoPlugin(period) | State::On(period) => Ok(period.clone()),
            State::Off => Err(Error::PluginOff),
        }
    }

    /// Changes the state to `Off`, and ends the period. Returns the period, or `None` if the state was `Off` already.
    fn end(&self) -> Option<ActivePeriod> {
        match std::mem::replace(&mut *self.state(), State::Off) {
            State::NoPlugin(period) | State::On(period) => {
                period.ended.cancel();
                Some(period)
            }
            State::Off => None,
        }
    }

    /// Reserves a place in the queue of switching requests, and returns a future that waits for this place. The place is reserved at once,
    /// not at the first poll of the future.
    fn turn(&self) -> impl Future<Output = Turn> + Send + use<> {
        queue_now(Arc::clone(&self.turn).lock_owned())
    }
}

impl Core {
    /// Returns the present on-period. Returns an error if the plugin is off.
    pub(super) fn check_plugin_on(&self) -> Result<ActivePeriod> {
        self.plugin_switch.period()
    }

    /// Ends all runs, calls and connections. Enabled servers stay marked as enabled. These servers become available again when the plugin
    /// is switched on, if their approval is valid at that time.
    async fn end_period(&self, period: Option<ActivePeriod>) {
        let Some(period) = period else { return };
        let servers: Vec<_> = self.registry.entries().iter().map(|entry| entry.name().to_owned()).collect();
        let ended: Vec<_> = servers.iter().map(|name| self.end(name, EndReason::SwitchedOff)).collect();
        futures::future::join_all(ended).await;
        period.runs.close();
        period.runs.wait().await;
        self.sandboxes.rest();
    }
}

impl Agent {
    /// Returns an error if the gateway is a plugin that is off, or if the agent or its gateway is closed.
    ///
    /// # Errors
    /// `ERR_PLUGIN_OFF`, `ERR_CLOSED`.
    pub fn check_plugin_on(&self) -> Result<()> {
        self.identity.check_open()?;
        self.core.check_plugin_on().map(drop)
    }
}

impl Gateway {
    /// Makes the gateway a plugin that is switched off. The future completes when all runs, calls and connections have ended.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if the gateway has a plugin already; `ERR_CLOSED`.
    pub(crate) fn begin_plugin(&self) -> Result<impl Future<Output = ()> + Send + use<>> {
        self.core.check_open()?;
        if !matches!(&*self.core.plugin_switch.state(), State::NoPlugin(_)) {
            let problem = "this gateway already has a plugin, and a gateway can have only one".to_owned();
            return Err(Error::InvalidOption { method: "Gateway.plugin", problem: problem.into() });
        }
        let (turn, core) = (self.core.plugin_switch.turn(), Arc::clone(&self.core));
        let period = self.core.plugin_switch.end();
        Ok(async move {
            let _turn = turn.await;
            core.end_period(period).await;
        })
    }

    /// Switches the plugin off, after earlier switching requests are done.
    pub(crate) fn switch_off(&self) -> impl Future<Output = ()> + Send + use<> {
        let (turn, core) = (self.core.plugin_switch.turn(), Arc::clone(&self.core));
        async move {
            let _turn = turn.await;
            let period = core.plugin_switch.end();
            core.end_period(period).await;
        }
    }

    /// Switches the plugin on after earlier switching requests are done, provided that `allowed` succeeds at that time. Returns the servers
    /// that are enabled from now on.
    ///
    /// # Errors
    /// The error of `allowed`; `ERR_CLOSED`, `ERR_APPROVAL_STORE`.
    pub(crate) fn switch_on(
        &self,
        allowed: Box<dyn FnOnce() -> Result<()> + Send>,
    ) -> impl Future<Output = Result<Vec<String>>> + Send + use<> {
        let (turn, gateway) = (self.core.plugin_switch.turn(), self.clone());
        async move {
            let _turn = turn.await;
            let core = &gateway.core;
            core.check_open()?;
            allowed()?;
            if core.plugin_switch.period().is_err() {
                *core.plugin_switch.state() = State::On(ActivePeriod::default());
            }
            Ok(core
                .visible_servers(&core.operator_viewer(), &AttachedServers::default())
                .map_err(|error| core.redacted(error))?
                .into_keys()
                .collect())
        }
    }
}
