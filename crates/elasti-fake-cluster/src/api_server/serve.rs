//! From an HTTP request to its response: authentication, authorisation, faults, dispatch.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};

use super::auth::User;
use super::object::Object as _;
use super::rbac::{self, Access};
use super::request::{self, ApiRequest, Output, Query, Route, Verb};
use super::session::{Answer, Session, quoted};
use super::status::{About, ApiError};
use super::watch::Watcher;
use super::{ApiServer, GIT_VERSION, discovery, openapi, render};
use crate::faults::{Call, Fault, WatchFault};

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A fault dropped the connection: there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection dropped")]
pub struct ConnectionDropped;

impl ApiServer {
    /// Answers one request.
    pub(crate) async fn serve(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, ConnectionDropped> {
        match self.route(&request, None) {
            Ok(Routed::Document(body, content_type)) => Ok(respond(200, body, content_type)),
            Ok(Routed::Api(api)) => self.serve_with_faults(&api).await,
            Err(error) => Ok(refuse(&error)),
        }
    }

    fn authenticate(&self, token: &str) -> Result<User, ApiError> {
        let state = self.state.lock();
        let reviewed = self
            .context
            .tokens
            .review(token, &[], &state.store, self.context.clock);
        reviewed
            .map(|(user, _)| user)
            .map_err(|_| ApiError::Unauthorized)
    }

    fn route(&self, request: &Request<Bytes>, inside: Option<User>) -> Result<Routed, ApiError> {
        let (token, path) = token_and_path(request);
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return Ok(Routed::Document(Bytes::from_static(b"ok"), "text/plain"));
        }
        let user = match inside {
            Some(user) => user,
            None => self.authenticate(token)?,
        };
        if let Some(document) = self.document(request, &user, path)? {
            return Ok(document);
        }
        let route = Route::parse(path, &self.state.lock().registry)?;
        let request = api_request(request, user, route)?;
        Ok(Routed::Api(Box::new(request)))
    }

    /// What is served beside resources: keys, version, discovery, OpenAPI.
    fn document(
        &self,
        request: &Request<Bytes>,
        user: &User,
        path: &str,
    ) -> Result<Option<Routed>, ApiError> {
        let only_get = || match request.method() {
            &http::Method::GET => Ok(()),
            _ => Err(ApiError::MethodNotAllowed),
        };
        if let Some((body, content_type)) = self.context.tokens.keys.document(path) {
            self.authorise_path(user, path)?;
            only_get()?;
            let body = Bytes::from(body.to_string());
            return Ok(Some(Routed::Document(body, content_type)));
        }
        if path == "/version" {
            only_get()?;
            return Ok(Some(Routed::document(&version())));
        }
        let state = self.state.lock();
        let accept = header_text(request, header::ACCEPT);
        if let Some((body, content_type)) = discovery::answer(path, accept, &state.registry) {
            let body = Bytes::from(body.to_string());
            return Ok(Some(Routed::Document(body, content_type)));
        }
        Ok(openapi::answer(path, &state.registry).map(|body| Routed::document(&body)))
    }

    /// Documents of no resource.
    fn authorise_path(&self, user: &User, path: &str) -> Result<(), ApiError> {
        let access = Access {
            verb: "get",
            path: Some(path),
            ..Access::default()
        };
        let checked = self.context.enforce_rbac && user.is_service_account();
        if !checked || rbac::allows(&self.state.lock().store, user, &access).is_some() {
            return Ok(());
        }
        Err(ApiError::Forbidden {
            about: About::default(),
            message: format!(
                "forbidden: User \"{}\" cannot get path \"{path}\"",
                user.name
            ),
            causes: vec![],
        })
    }

    fn authorise(&self, request: &ApiRequest) -> Result<(), ApiError> {
        if !self.context.enforce_rbac || !request.user.is_service_account() {
            return Ok(());
        }
        let resource = &request.resource;
        let access = Access {
            verb: request.verb.as_str(),
            group: &resource.group,
            resource: &resource.plural,
            subresource: &request.subresource,
            // A namespace lies in itself, so its own Roles may speak of it.
            namespace: match resource.is("", "namespaces") {
                true => &request.name,
                false => &request.namespace,
            },
            name: authorised_name(request),
            path: None,
        };
        if rbac::allows(&self.state.lock().store, &request.user, &access).is_some() {
            return Ok(());
        }
        let place = if request.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", request.namespace)
        };
        let slash = if request.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", request.subresource)
        };
        let about = request.about();
        let message = format!(
            "{} is forbidden: User \"{}\" cannot {} resource \"{}{slash}\" in API group \"{}\" {place}",
            quoted(&about),
            request.user.name,
            access.verb,
            resource.plural,
            resource.group
        );
        Err(ApiError::Forbidden {
            about,
            message,
            causes: vec![],
        })
    }

    /// A call from outside: journalled, and faulted where a test asked for it.
    async fn serve_with_faults(
        &self,
        request: &ApiRequest,
    ) -> Result<Response<Body>, ConnectionDropped> {
        let call = self.faults.begin(call(request));
        let mut watch_faults: Vec<WatchFault> = Vec::new();
        let (mut stale, mut after, mut refused) = (None, None, None);
        for fault in self.faults.strikes(&call) {
            match fault {
                Fault::CrashCallerBefore => {
                    self.crash(&call).await;
                    return Err(ConnectionDropped);
                }
                Fault::CrashCallerAfter | Fault::LoseAnswer => after = Some(fault),
                Fault::Conflict => {
                    let why = super::status::MODIFIED.to_owned();
                    refused = Some(ApiError::Conflict {
                        about: request.about(),
                        why,
                    });
                }
                Fault::TooManyRequests {
                    retry_after_seconds,
                } => {
                    refused = Some(ApiError::TooManyRequests {
                        retry_after_seconds,
                    })
                }
                Fault::Refuse => {
                    refused = Some(ApiError::Forbidden {
                        about: request.about(),
                        message: "exceeded quota: the simulated cluster was asked to refuse".into(),
                        causes: Vec::new(),
                    });
                }
                Fault::InternalError => {
                    refused = Some(ApiError::InternalError(
                        "the simulated cluster was asked to fail".to_owned(),
                    ))
                }
                Fault::Delay(time) => tokio::time::sleep(time).await,
                Fault::StaleRead { versions_back } => stale = Some(versions_back),
                Fault::Watch(fault) => watch_faults.push(fault),
            }
        }
        let response = match refused {
            Some(error) => refuse(&error),
            None if request.subresource == "proxy" => match self.authorise(request) {
                Ok(()) => self.proxy(request).await,
                Err(error) => refuse(&error),
            },
            None => self.dispatch(request, &call, stale, watch_faults),
        };
        match after {
            None => {
                self.faults.end(call.number, response.status().as_u16());
                Ok(response)
            }
            Some(fault) => {
                if fault == Fault::CrashCallerAfter {
                    self.crash(&call).await;
                }
                Err(ConnectionDropped)
            }
        }
    }

    /// The caller dies. One that runs in this process gets to the end of its life here: it must not do
    /// anything more, not even notice the dropped connection.
    async fn crash(&self, call: &Call) {
        self.faults.crash(call);
        tokio::task::yield_now().await;
    }

    fn dispatch(
        &self,
        request: &ApiRequest,
        call: &Call,
        stale: Option<u64>,
        watch_faults: Vec<WatchFault>,
    ) -> Response<Body> {
        if let Err(error) = self.authorise(request) {
            return refuse(&error);
        }
        if request.verb == Verb::Watch {
            let journal = (self.faults.clone(), Arc::new(call.clone()));
            let clock = self.context.clock;
            return match Watcher::open(&self.state, request, clock, watch_faults, journal) {
                Ok(watcher) => respond_stream(watcher),
                Err(error) => refuse(&error),
            };
        }
        match self.perform(request, stale) {
            Err(error) => refuse(&error),
            Ok((answer, warnings)) => {
                let (code, body) = render::answer(answer, request, self.context.clock);
                let mut response = respond(code, body, "application/json");
                for warning in warnings {
                    let text = format!(
                        "299 - \"{}\"",
                        warning.replace('\\', "\\\\").replace('"', "\\\"")
                    );
                    if let Ok(value) = HeaderValue::from_str(&text) {
                        response.headers_mut().append(header::WARNING, value);
                    }
                }
                response
            }
        }
    }

    /// The work of a request that is no watch, in one go.
    fn perform(
        &self,
        request: &ApiRequest,
        stale: Option<u64>,
    ) -> Result<(Answer, Vec<String>), ApiError> {
        let mut state = self.state.lock();
        let stale = stale.map(|back| state.store.version().saturating_sub(back));
        let mut session = Session::new(&mut state, &self.context, request);
        let answer = work(&mut session, stale)?;
        Ok((answer, std::mem::take(&mut session.warnings)))
    }

    /// A request of the control plane itself, answered at once.
    pub(crate) fn send(
        &self,
        component: &str,
        method: &http::Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let mut request = Request::new(Bytes::from(body.to_string()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.parse().map_err(|_| ApiError::NoSuchPath)?;
        for (name, value) in [
            (header::CONTENT_TYPE, content_type),
            (header::USER_AGENT, component),
        ] {
            if let Ok(value) = value.parse() {
                request.headers_mut().insert(name, value);
            }
        }
        let Routed::Api(api) = self.route(&request, Some(User::system(component)))? else {
            return Err(ApiError::NoSuchPath);
        };
        let (answer, _) = self.perform(&api, None)?;
        let (_, body) = render::answer(answer, &api, self.context.clock);
        serde_json::from_slice(&body).map_err(|error| ApiError::Internal(error.to_string()))
    }
}

fn header_text(request: &Request<Bytes>, name: header::HeaderName) -> &str {
    let value = request.headers().get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn api_request(request: &Request<Bytes>, user: User, route: Route) -> Result<ApiRequest, ApiError> {
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let verb = route.verb(request.method(), &query)?;
    let Route {
        resource,
        namespace,
        name,
        subresource,
        beyond,
    } = route;
    let output = match subresource.as_str() {
        // What a pod can give is the pod's affair.
        "proxy" => Output::Object,
        _ => request::output(request.headers())?,
    };
    let content_type = header_text(request, header::CONTENT_TYPE).split(';').next();
    Ok(ApiRequest {
        user_agent: header_text(request, header::USER_AGENT).to_owned(),
        output: match subresource.as_str() {
            "scale" => Output::Object,
            _ => output,
        },
        body: request.body().clone(),
        user,
        verb,
        resource,
        namespace,
        name,
        subresource,
        query,
        content_type: content_type.unwrap_or_default().trim().to_owned(),
        beyond: match request.uri().query() {
            Some(query) => format!("{beyond}?{query}"),
            None => beyond,
        },
    })
}

/// The bearer token and the rest of the path. kubectl sends no credentials over plain HTTP, so a
/// kubeconfig's server address may carry the token: `http://host/as/<token>`.
fn token_and_path(request: &Request<Bytes>) -> (&str, &str) {
    let path = request.uri().path();
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let bearer = given
        .and_then(|given| given.strip_prefix("Bearer "))
        .unwrap_or_default();
    let Some(rest) = path.strip_prefix("/as/") else {
        return (bearer, path);
    };
    match rest.find('/') {
        Some(end) => rest.split_at(end),
        None => (rest, "/"),
    }
}

/// The name that a permission is asked for: a collection from which a field selector takes one object counts as that one.
fn authorised_name(request: &ApiRequest) -> &str {
    let collection = matches!(
        request.verb,
        Verb::List | Verb::Watch | Verb::DeleteCollection
    );
    if !collection || !request.name.is_empty() {
        return &request.name;
    }
    let fields = request.query.get("fieldSelector").split(',');
    let mut named = fields.filter_map(|field| field.trim().strip_prefix("metadata.name="));
    named.next().unwrap_or_default().trim_start_matches('=')
}

/// The verb's work.
fn work(session: &mut Session<'_>, stale: Option<u64>) -> Result<Answer, ApiError> {
    let request = session.request;
    match (request.verb, request.subresource.as_str()) {
        (Verb::Get, _) => stale.map_or_else(|| session.get(), |version| session.get_at(version)),
        (Verb::List | Verb::Watch, _) => session.list(stale),
        (Verb::Create, "") if !request.resource.allows("get") => session.review(),
        (Verb::Create, "") => session.create(),
        (Verb::Create, _) => session.create_in_subresource(),
        (Verb::Update, "scale") => super::scale::put(session),
        (Verb::Update, "finalize") => session.finalize(),
        (Verb::Update, _) => session.update(),
        (Verb::Patch, _) => session.patch(),
        (Verb::Delete, _) => session.delete(),
        (Verb::DeleteCollection, _) => session.delete_collection(),
    }
}

enum Routed {
    Document(Bytes, &'static str),
    Api(Box<ApiRequest>),
}

impl Routed {
    fn document(body: &Value) -> Self {
        Self::Document(Bytes::from(body.to_string()), "application/json")
    }
}

fn call(request: &ApiRequest) -> Call {
    Call {
        number: 0,
        user: request.user.name.clone(),
        user_agent: request.user_agent.clone(),
        verb: request.verb,
        kind: request.resource.plural.clone(),
        subresource: request.subresource.clone(),
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        code: 0,
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": GIT_VERSION, "gitCommit": "fake-cluster", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn respond(code: u16, body: Bytes, content_type: &'static str) -> Response<Body> {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_LENGTH, length);
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

fn respond_stream(watcher: Watcher) -> Response<Body> {
    let frames = watcher
        .stream()
        .map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

pub(super) fn refuse(error: &ApiError) -> Response<Body> {
    if *error == ApiError::NoSuchPath {
        return respond(
            404,
            Bytes::from_static(b"404 page not found\n"),
            "text/plain; charset=utf-8",
        );
    }
    let mut response = respond(
        error.code(),
        Bytes::from(error.status().to_string()),
        "application/json",
    );
    if let Some(seconds) = error.retry_after_seconds() {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The same refusal whatever the verb, for requests that never became one.
pub(crate) fn body_too_large() -> Response<Body> {
    let error = ApiError::Invalid {
        about: About::default(),
        causes: vec![],
    };
    let mut status = error.status();
    status.put("/message", "Request entity too large: limit is 3145728");
    status.put("/reason", "RequestEntityTooLarge");
    status.put("/code", 413);
    respond(413, Bytes::from(status.to_string()), "application/json")
}
