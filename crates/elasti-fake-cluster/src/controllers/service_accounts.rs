//! Every namespace has a `default` service account.
//! Never deletes one.

use std::time::Duration;

use serde_json::json;

use super::engine::{Change, Controller, Desk, Kind};
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

    fn keys(&mut self, _: &Desk, change: &Change) -> Vec<Key> {
        let key = Key::of(&change.object.value);
        let namespace = if key.namespace.is_empty() {
            key.name
        } else {
            key.namespace
        };
        vec![Key::new("", &namespace)]
    }

    fn reconcile(&mut self, desk: &Desk, key: &Key) -> Result<Option<Duration>, ApiError> {
        let active = desk
            .get(Kind::NAMESPACES, key)
            .is_some_and(|namespace| namespace.value.text("/status/phase") == "Active");
        if active
            && desk
                .get(Kind::SERVICE_ACCOUNTS, &Key::new(&key.name, "default"))
                .is_none()
        {
            desk.create(
                Kind::SERVICE_ACCOUNTS,
                &key.name,
                &json!({"metadata": {"name": "default"}}),
            )?;
        }
        Ok(None)
    }
}
