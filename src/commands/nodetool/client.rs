//! Requests to the admin side of a server: one connection for each.

use super::TOKEN_VARIABLE;
use crate::admin::report::Failure;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::error::Error;
use std::fmt::Write;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// How long the server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer.
const MAX_ANSWER: usize = 256 << 20;

/// Characters that are shown of an answer of something else.
const MAX_SHOWN: usize = 200;

/// How often it is looked how far the server is.
const WATCH_PERIOD: Duration = Duration::from_millis(500);

/// The admin side of a server.
#[derive(Debug)]
pub(in crate::commands) struct Client {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
    /// How long the server may take to answer what it can answer at once.
    timeout: Duration,
    runtime: Runtime,
}

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub(in crate::commands) enum ClientError {
    /// There is nobody.
    #[error(
        "Error connecting to the admin side of {server}: {source}. Is the server running, and are \
         these its AdminAddress and AdminPort?"
    )]
    Connect {
        /// Host and port.
        server: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// Whoever is there does not speak as the admin side does, or broke off.
    #[error(
        "Error talking to the admin side of {server}: {source}. Is it the AdminPort of an \
         Alexandra server, and is that still running?"
    )]
    Broken {
        /// Host and port.
        server: String,
        /// What went wrong.
        source: hyper::Error,
    },
    /// The answer did not come.
    #[error("the server {server} has not answered within {} seconds", timeout.as_secs())]
    TimedOut {
        /// Host and port.
        server: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The answer is not what the admin side would say.
    #[error(
        "the answer of {server} makes no sense: {reason}. Is it the AdminPort of an Alexandra \
         server?"
    )]
    Senseless {
        /// Host and port.
        server: String,
        /// How it shows.
        reason: Box<dyn Error + Send + Sync>,
    },
    /// The server says why not.
    #[error("{}", told(*status, error))]
    Refused {
        /// The kind of failure.
        status: StatusCode,
        /// What it says.
        error: String,
    },
    /// The token has characters that cannot be sent.
    #[error("the token cannot be sent: it may only have printable characters")]
    Token,
    /// There is no runtime.
    #[error("the runtime cannot be started: {0}")]
    Runtime(#[from] io::Error),
}

impl ClientError {
    /// Whether there is no server, rather than one that says no.
    pub(super) fn is_about_the_connection(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Token)
    }
}

fn told(status: StatusCode, error: &str) -> String {
    if status == StatusCode::UNAUTHORIZED {
        return format!("{error} (--token-file FILE, or in {TOKEN_VARIABLE})");
    }
    error.to_owned()
}

impl Client {
    /// A client of the server at this host and port; nothing is sent yet.
    pub(in crate::commands) fn new(
        host: &str,
        port: u16,
        token: Option<String>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let authorization = token.map(|token| format!("Bearer {token}").parse::<HeaderValue>());
        let authorization = authorization.transpose().map_err(|_| ClientError::Token)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { host: host.to_owned(), port, authorization, timeout, runtime })
    }

    /// What the server tells at this path.
    pub(in crate::commands) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<T, ClientError> {
        let exchange = self.soon(self.exchange(Method::GET, path, Bytes::new()));
        self.parse(&self.runtime.block_on(exchange)?)
    }

    /// Has the server change a setting, which takes no time.
    pub(super) fn set(
        &self,
        path: &str,
        parameters: &Map<String, Value>,
    ) -> Result<Value, ClientError> {
        let exchange = self.exchange(Method::PUT, path, self.body(parameters)?);
        self.parse(&self.runtime.block_on(self.soon(exchange))?)
    }

    /// Has the server do something; waits as long as that takes.
    pub(super) fn work<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &Map<String, Value>,
    ) -> Result<T, ClientError> {
        let exchange = self.exchange(Method::POST, path, self.body(parameters)?);
        self.parse(&self.runtime.block_on(exchange)?)
    }

    /// [`Client::work`], and tells meanwhile, now and then, what is found at another path.
    pub(super) fn work_watched<W: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &Map<String, Value>,
        watched: &str,
        mut tell: impl FnMut(&W),
    ) -> Result<Value, ClientError> {
        let work = self.exchange(Method::POST, path, self.body(parameters)?);
        let watch = async {
            loop {
                tokio::time::sleep(WATCH_PERIOD).await;
                let look = self.soon(self.exchange(Method::GET, watched, Bytes::new())).await;
                // What matters is how the work ends.
                if let Some(found) = look.ok().and_then(|answer| self.parse(&answer).ok()) {
                    tell(&found);
                }
            }
        };
        let done = self.runtime.block_on(async {
            tokio::select! {
                biased;
                done = work => done,
                never = watch => never,
            }
        });
        self.parse(&done?)
    }

    /// Has the server remove what is meant by this path; waits as long as that takes.
    pub(super) fn delete(&self, path: &str) -> Result<Value, ClientError> {
        self.parse(&self.runtime.block_on(self.exchange(Method::DELETE, path, Bytes::new()))?)
    }

    /// What is answered at once if the server is well.
    async fn soon<T>(
        &self,
        exchange: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let timeout = self.timeout;
        match tokio::time::timeout(timeout, exchange).await {
            Ok(answered) => answered,
            Err(_) => Err(ClientError::TimedOut { server: self.server(), timeout }),
        }
    }

    fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The error for an answer that is not what the resource answers.
    pub(super) fn senseless(&self, reason: impl Into<Box<dyn Error + Send + Sync>>) -> ClientError {
        ClientError::Senseless { server: self.server(), reason: reason.into() }
    }

    fn body(&self, parameters: &Map<String, Value>) -> Result<Bytes, ClientError> {
        let body = serde_json::to_vec(parameters).map_err(|error| self.senseless(error))?;
        Ok(body.into())
    }

    fn parse<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(answer).map_err(|error| self.senseless(error))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        let broken = |source| ClientError::Broken { server: self.server(), source };
        let stream = self.connect().await?;
        // By its address the server knows itself, whatever name leads there.
        let address = stream.peer_addr()?.to_string();
        let mut request = Request::builder().method(method).uri(path).header(HOST, address);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.senseless(error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // It ends with the request; what went wrong shows there.
        let driver = tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        driver.abort();
        let answer = answer.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => broken(*error),
            Err(error) => {
                debug_assert!(error.is::<LengthLimitError>());
                self.senseless(error)
            }
        })?;
        let answer = answer.to_bytes();
        if status.is_success() {
            return Ok(answer);
        }
        if let Ok(Failure { error }) = serde_json::from_slice(&answer) {
            return Err(ClientError::Refused { status, error });
        }
        let text = String::from_utf8_lossy(&answer);
        let shown: String = text.trim().chars().take(MAX_SHOWN).collect();
        Err(self.senseless(format!("{status}, {shown:?}")))
    }

    async fn connect(&self) -> Result<TcpStream, ClientError> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let connected = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        connected.map_err(|source| ClientError::Connect { server: self.server(), source })
    }
}

/// A path with parameters, which are texts.
pub(super) fn query(path: &str, parameters: &Map<String, Value>) -> String {
    let mut address = path.to_owned();
    for (name, value) in parameters {
        address.push(if address.contains('?') { '&' } else { '?' });
        address.push_str(name);
        address.push('=');
        for byte in value.as_str().unwrap_or_default().bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
                address.push(char::from(byte));
            } else {
                let _ = write!(address, "%{byte:02X}");
            }
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_may_have_any_characters() {
        assert_eq!(query("/a", &Map::new()), "/a");
        let parameters = json!({ "b": "x y&z", "d": "ä-1" });
        let address = query("/a", parameters.as_object().unwrap());
        assert_eq!(address, "/a?b=x%20y%26z&d=%C3%A4-1");
    }
}
