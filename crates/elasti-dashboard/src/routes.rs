//! The API and the page: which path gives what.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use super::broadcast::Broadcast;
use super::guard::{self, Guard};
use super::state::{FleetState, Name};
use super::user_request::UserRequest;
use super::{page, show};

/// The text of `elasti why` for a service, by namespace and name; `None` if the cluster gives no answer.
pub type Explain =
    Arc<dyn Fn(kube::Client, String, String) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// What the routes need.
#[derive(Clone)]
pub(crate) struct AppState {
    pub(crate) state: Arc<Mutex<FleetState>>,
    pub(crate) broadcast: Arc<Broadcast>,
    pub(crate) client: kube::Client,
    pub(crate) explain: Option<Explain>,
}

/// Every route, behind the guard.
pub(crate) fn router(app: AppState, guard: Guard) -> Router {
    let one = "/api/v1/services/{namespace}/{name}";
    let mut router = Router::new()
        .route("/api/v1/fleet", get(fleet))
        .route("/api/v1/stream", get(stream))
        .route(one, get(service))
        .route("/api/v1/services/{namespace}/{name}/why", get(why));
    if guard.may_write() {
        router = router.route(
            "/api/v1/services/{namespace}/{name}/{user_request}",
            post(write),
        );
    }
    router
        .fallback(file)
        .method_not_allowed_fallback(async || {
            failed(
                StatusCode::METHOD_NOT_ALLOWED,
                "Method",
                "Method not allowed.",
            )
        })
        .with_state(app)
        .layer(from_fn_with_state(Arc::new(guard), guard::check))
}

async fn fleet(State(app): State<AppState>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, app.broadcast.fleet(Timestamp::now())).into_response()
}

async fn stream(State(app): State<AppState>) -> Response {
    let Some(messages) = app.broadcast.subscribe() else {
        let words = "Too many browsers are connected to this dashboard.";
        return failed(StatusCode::SERVICE_UNAVAILABLE, "Busy", words);
    };
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(messages.map(Ok::<_, Infallible>))).into_response()
}

async fn service(
    State(app): State<AppState>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let name = Name { namespace, name };
    let state = app.state.lock();
    match show::service(&state, &name, Timestamp::now()) {
        Some(shown) => Json(shown).into_response(),
        None => missing(&state, &name),
    }
}

/// The text of `elasti why` from live objects where it is available, else from the watches.
async fn why(
    State(app): State<AppState>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let name = Name { namespace, name };
    let watched = show::why(&app.state.lock(), &name, Timestamp::now());
    let Some(watched) = watched else {
        return missing(&app.state.lock(), &name);
    };
    let text = match app.explain {
        Some(explain) => explain(app.client, name.namespace, name.name).await,
        None => None,
    };
    let text = text.unwrap_or(watched);
    Json(json!({"text": text})).into_response()
}

fn missing(state: &FleetState, name: &Name) -> Response {
    match state.broken(name) {
        Some(error) => {
            let words = format!("{name} cannot be parsed: {error}");
            failed(StatusCode::UNPROCESSABLE_ENTITY, "Broken", &words)
        }
        None => failed(
            StatusCode::NOT_FOUND,
            "NotFound",
            &format!("There is no ElastiService {name}."),
        ),
    }
}

async fn write(
    State(app): State<AppState>,
    Path((namespace, name, user_request)): Path<(String, String, String)>,
) -> Response {
    let Some(user_request) = UserRequest::parse(&user_request) else {
        return failed(
            StatusCode::NOT_FOUND,
            "NotFound",
            "There is no such action.",
        );
    };
    let name = Name { namespace, name };
    // Only what is shown can be changed: no other name reaches the cluster from here.
    let view = app.state.lock().view(&name, Timestamp::now());
    let Some(view) = view else {
        return missing(&app.state.lock(), &name);
    };
    match user_request.submit(&app.client, &name, &view).await {
        Ok(message) => Json(json!({"message": message})).into_response(),
        Err(refused) => failed(refused.code, refused.reason, &refused.message),
    }
}

async fn file(uri: Uri, asked: HeaderMap) -> Response {
    page::file(uri.path(), &asked)
        .unwrap_or_else(|| failed(StatusCode::NOT_FOUND, "NotFound", "There is no such page."))
}

fn failed(code: StatusCode, reason: &str, message: &str) -> Response {
    (code, Json(json!({"reason": reason, "message": message}))).into_response()
}
