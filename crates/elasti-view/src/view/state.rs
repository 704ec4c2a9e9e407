//! The state of a service, coarser than its phase, as its history has it.

use elasti_api::HistoryState;
use elasti_core::status::phase_state;

use super::View;

impl View {
    /// What is wrong comes first: a wake that fails is no wake. `None` before an operator has reconciled it.
    #[must_use]
    pub fn state(&self) -> Option<HistoryState> {
        match self.trouble || self.failed_wake.is_some() {
            true => Some(HistoryState::Failed),
            false => self.phase.map(phase_state),
        }
    }
}
