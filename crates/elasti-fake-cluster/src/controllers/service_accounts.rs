//! Every namespace has a `default` service account.

use std::time::Duration;

use serde_json::json;

use super::engine::{Change, Controller, ControllerClient, Kind};
use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;

#[derive(Debug)]
pub(crate) struct ServiceAccounts;

impl Controller for ServiceAccounts {
    const COMPONENT: &'static str = "service-account-controller";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::NAMESPACES, Kind::SERVICE_ACCOUNTS]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        let key = Key::from_object(&change.object.value);
        let namespace = if key.namespace.is_empty() {
            key.name
        } else {
            key.namespace
        };
        vec![Key::new("", &namespace)]
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let active = client
            .get(Kind::NAMESPACES, key)
            .is_some_and(|namespace| namespace.value.text("/status/phase") == "Active");
        if active
            && client
                .get(Kind::SERVICE_ACCOUNTS, &Key::new(&key.name, "default"))
                .is_none()
        {
            client.create(
                Kind::SERVICE_ACCOUNTS,
                &key.name,
                &json!({"metadata": {"name": "default"}}),
            )?;
        }
        Ok(None)
    }
}
