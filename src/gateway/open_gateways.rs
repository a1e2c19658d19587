//! The open gateways of one JavaScript environment. They are ended when the environment is torn down.

use parking_lot::Mutex;

use super::WeakGateway;

/// Weak references to gateways. References to dropped gateways are removed when the next gateway is added.
#[derive(Default)]
pub struct OpenGateways(Mutex<Vec<WeakGateway>>);

impl OpenGateways {
    /// Adds a gateway.
    pub fn add(&self, gateway: WeakGateway) {
        let mut all = self.0.lock();
        all.retain(|known| !known.is_gone());
        all.push(gateway);
    }

    /// Ends all gateways that still exist, as [`super::Gateway::kill`] does.
    pub fn kill(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for gateway in all.iter().filter_map(WeakGateway::upgrade) {
            gateway.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::{Gateway, GatewayOptions};

    #[tokio::test]
    async fn of_many_gateways_one_after_the_other_no_memory_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let open = OpenGateways::default();
        for _ in 0..20 {
            let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
            options.config = Some(json!({ "mcpServers": {} }));
            options.state_dir = Some(folder.path().to_owned());
            let gateway = Gateway::open(options).unwrap();
            open.add(gateway.downgrade());
            gateway.close().await;
        }
        assert_eq!(open.0.lock().len(), 1);
    }
}
