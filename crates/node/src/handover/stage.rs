//! How far a handover is.

use tokio::sync::watch;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Serves,
    HandsOver,
    HasHandedOver,
}

/// How far a node is that hands over.
pub struct Handover {
    pub(super) stage: watch::Sender<Stage>,
}

impl Default for Handover {
    fn default() -> Handover {
        Handover { stage: watch::Sender::new(Stage::Serves) }
    }
}

impl Handover {
    /// Waits until the handover begins: uploads under way will not be written here. Waits for ever if it does
    /// not.
    pub async fn wait_until_begun(&self) {
        let mut stage = self.stage.subscribe();
        if stage.wait_for(|stage| *stage >= Stage::HandsOver).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The engine has handed over.
    pub fn end(&self) {
        self.stage.send_replace(Stage::HasHandedOver);
    }

    pub(super) fn is_over(&self) -> bool {
        *self.stage.borrow() == Stage::HasHandedOver
    }
}
