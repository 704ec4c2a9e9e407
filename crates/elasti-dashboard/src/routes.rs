//! The API and the page: which path gives what.
//! Never answers before the guard has let the request pass.

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

use super::ask::{self, UserRequest};
use super::guard::{self, Guard};
use super::known::{Known, Name};
use super::news::News;
use super::{page, show};

/// The text of `elasti why` for a service, by namespace and name; `None` if the cluster gives no answer.
pub type Explain =
    Arc<dyn Fn(kube::Client, String, String) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// What the routes need.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) known: Arc<Mutex<Known>>,
    pub(crate) news: Arc<News>,
    pub(crate) client: kube::Client,
    pub(crate) explain: Option<Explain>,
}

/// Every route, behind the guard.
pub(crate) fn router(desk: Desk, guard: Guard) -> Router {
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
            failed(StatusCode::METHOD_NOT_ALLOWED, "Method", "Not that way.")
        })
        .with_state(desk)
        .layer(from_fn_with_state(Arc::new(guard), guard::stand))
}

async fn fleet(State(desk): State<Desk>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, desk.news.fleet(Timestamp::now())).into_response()
}

async fn stream(State(desk): State<Desk>) -> Response {
    let Some(messages) = desk.news.listen() else {
        let words = "Too many browsers look at this dashboard.";
        return failed(StatusCode::SERVICE_UNAVAILABLE, "Busy", words);
    };
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(messages.map(Ok::<_, Infallible>))).into_response()
}

async fn service(
    State(desk): State<Desk>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let name = Name { namespace, name };
    let known = desk.known.lock();
    match show::service(&known, &name, Timestamp::now()) {
        Some(shown) => Json(shown).into_response(),
        None => missing(&known, &name),
    }
}

/// What `elasti why` says, from a fresh look; where that command is not built in, what the watches know.
async fn why(
    State(desk): State<Desk>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let name = Name { namespace, name };
    let known = show::why(&desk.known.lock(), &name, Timestamp::now());
    let Some(known) = known else {
        return missing(&desk.known.lock(), &name);
    };
    let text = match desk.explain {
        Some(explain) => explain(desk.client, name.namespace, name.name).await,
        None => None,
    };
    let text = text.unwrap_or(known);
    Json(json!({"text": text})).into_response()
}

fn missing(known: &Known, name: &Name) -> Response {
    match known.broken(name) {
        Some(error) => {
            let words = format!("{name} cannot be read: {error}");
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
    State(desk): State<Desk>,
    Path((namespace, name, user_request)): Path<(String, String, String)>,
) -> Response {
    let Some(user_request) = UserRequest::read(&user_request) else {
        return failed(StatusCode::NOT_FOUND, "NotFound", "There is no such wish.");
    };
    let name = Name { namespace, name };
    // Only what is shown can be changed: no other name reaches the cluster from here.
    if desk.known.lock().one(&name).is_none() {
        return missing(&desk.known.lock(), &name);
    }
    match ask::ask(&desk.client, &name, user_request).await {
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
