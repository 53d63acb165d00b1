//! Requests to the admin side of a server, over one connection as long as that stays.

use crate::admin::report::Failure as Answer;
use crate::base::tls::{Stream, Trust};
use crate::commands::output::Failure;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt::{Display, Write};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Exit code without a server, as in 0.6.
const NOT_CONNECTED: u8 = 3;

/// Time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer.
const MAX_ANSWER: usize = 256 << 20;

/// Characters that are shown of an answer of something else.
const MAX_SHOWN: usize = 200;

/// Interval at which the server is asked for its progress.
const WATCH_PERIOD: Duration = Duration::from_millis(500);

/// Environment variable for the token.
const TOKEN_VARIABLE: &str = "ALEXANDRA_ADMIN_TOKEN";

/// Arguments that name the admin side of a server.
#[derive(Debug, clap::Args)]
pub(in crate::commands) struct ServerArguments {
    /// The server: AdminAddress in its storage-conf.xml
    #[arg(short = 'h', long, global = true, default_value = "127.0.0.1", value_name = "HOST")]
    pub(in crate::commands) host: String,

    /// Its AdminPort
    #[arg(short = 'p', long, global = true, default_value_t = 8080, value_name = "PORT")]
    port: u16,

    /// A file that holds the AdminToken, for changes
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Speaks TLS, with servers whose certificates an authority of this file has signed
    #[arg(long = "tls-authority", global = true, value_name = "FILE")]
    trust: Option<Trust>,
}

impl ServerArguments {
    /// A client of the server.
    pub(in crate::commands) fn client(&self, timeout: Duration) -> Result<Client, Failure> {
        self.client_of(&self.host, timeout)
    }

    /// A client of another server of the ring, which has the same port and token.
    pub(in crate::commands) fn client_of(
        &self,
        host: &str,
        timeout: Duration,
    ) -> Result<Client, Failure> {
        let token = token(self.token_file.as_deref())?;
        Ok(Client::new(host, self.port, token, timeout)?.trusting(self.trust.clone()))
    }
}

/// The token for changes: from a file, else from the environment.
fn token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else { return Ok(std::env::var(TOKEN_VARIABLE).ok()) };
    let text = fs::read_to_string(file).map_err(|source| {
        let file = file.display();
        Failure::new(format_args!("cannot read the token from {file}: {source}"))
    })?;
    Ok(Some(text.trim().to_owned()))
}

/// The admin side of a server.
#[derive(Debug)]
pub(in crate::commands) struct Client {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
    /// Time limit for answers that the server can give at once.
    timeout: Duration,
    runtime: Runtime,
    /// For a server by TLS.
    trust: Option<Trust>,
    /// The connection of the request before.
    kept: RefCell<Option<Open>>,
}

/// A connection, and the address that it leads to.
#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    address: String,
}

impl Client {
    /// A client of the server at this host and port; nothing is sent yet.
    pub(in crate::commands) fn new(
        host: &str,
        port: u16,
        token: Option<String>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let authorization = token.map(|token| format!("Bearer {token}").parse::<HeaderValue>());
        let authorization = authorization.transpose().map_err(|_| {
            Failure::new("the token cannot be sent: it may only have printable characters")
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Failure::with(NOT_CONNECTED, format_args!("the runtime cannot be started: {error}"))
        })?;
        let host = host.to_owned();
        let kept = RefCell::default();
        Ok(Self { host, port, authorization, timeout, runtime, trust: None, kept })
    }

    /// The same by TLS, if there is any trust.
    pub(in crate::commands) fn trusting(self, trust: Option<Trust>) -> Self {
        Self { trust, ..self }
    }

    /// The answer at this path.
    pub(in crate::commands) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(&Method::GET, path, &Map::new())
    }

    /// The same as it is.
    pub(in crate::commands) fn get_bytes(&self, path: &str) -> Result<Bytes, Failure> {
        self.runtime.block_on(self.bytes(&Method::GET, path, &Map::new()))
    }

    /// The answer to a request. Only a GET and a PUT have a time limit: the server can answer them
    /// at once. The others are work, which takes its time.
    pub(in crate::commands) fn call<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        parameters: &Map<String, Value>,
    ) -> Result<T, Failure> {
        self.runtime.block_on(self.answer(method, path, parameters))
    }

    /// The answer to a POST; tells meanwhile, now and then, what is found at another path.
    pub(super) fn work_watched<W: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &Map<String, Value>,
        watched: &str,
        mut tell: impl FnMut(&W),
    ) -> Result<Value, Failure> {
        let watch = async {
            loop {
                tokio::time::sleep(WATCH_PERIOD).await;
                // Only the end of the work matters.
                if let Ok(found) = self.answer(&Method::GET, watched, &Map::new()).await {
                    tell(&found);
                }
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                done = self.answer(&Method::POST, path, parameters) => done,
                never = watch => never,
            }
        })
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        parameters: &Map<String, Value>,
    ) -> Result<T, Failure> {
        let answer = self.bytes(method, path, parameters).await?;
        serde_json::from_slice(&answer).map_err(|error| self.senseless(error))
    }

    async fn bytes(
        &self,
        method: &Method,
        path: &str,
        parameters: &Map<String, Value>,
    ) -> Result<Bytes, Failure> {
        let exchange = self.exchange(method, path, parameters);
        if [Method::GET, Method::PUT].contains(method) {
            tokio::time::timeout(self.timeout, exchange).await.unwrap_or_else(|_| {
                let (server, seconds) = (self.server(), self.timeout.as_secs());
                let text = format!("the server {server} has not answered within {seconds} seconds");
                Err(Failure::with(NOT_CONNECTED, text))
            })
        } else {
            exchange.await
        }
    }

    fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The error for an answer that is not what the resource answers.
    pub(super) fn senseless(&self, reason: impl Display) -> Failure {
        let server = self.server();
        let text = format!(
            "the answer of {server} makes no sense: {reason}. Is it the AdminPort of an Alexandra \
             server?"
        );
        Failure::with(NOT_CONNECTED, text)
    }

    fn broken(&self, source: impl Display) -> Failure {
        let server = self.server();
        let text = format!(
            "Error talking to the admin side of {server}: {source}. Is it the AdminPort of an \
             Alexandra server, and is that still running?"
        );
        Failure::with(NOT_CONNECTED, text)
    }

    async fn exchange(
        &self,
        method: &Method,
        path: &str,
        parameters: &Map<String, Value>,
    ) -> Result<Bytes, Failure> {
        let request = (method, path, parameters);
        // A server closes what is idle. Only a look may be asked for once more.
        let kept = self.kept.take().filter(|_| *method == Method::GET);
        let answered = match kept {
            Some(kept) => self.send(kept, request).await.ok(),
            None => None,
        };
        let (status, answer) = match answered {
            Some(answered) => answered,
            None => self.send(self.open().await?, request).await?,
        };
        if status.is_success() {
            return Ok(answer);
        }
        if let Ok(Answer { error }) = serde_json::from_slice(&answer) {
            return Err(Failure::new(match status {
                StatusCode::UNAUTHORIZED => {
                    format!("{error} (--token-file FILE, or in {TOKEN_VARIABLE})")
                }
                _ => error,
            }));
        }
        let text = String::from_utf8_lossy(&answer);
        let shown: String = text.trim().chars().take(MAX_SHOWN).collect();
        Err(self.senseless(format_args!("{status}, {shown:?}")))
    }

    async fn open(&self) -> Result<Open, Failure> {
        let stream = self.connect().await?;
        // By its address the server knows itself, whatever name leads there.
        let address = stream.socket().peer_addr().map_err(|error| self.broken(error))?.to_string();
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| self.broken(error))?;
        // It ends with the sender; what went wrong shows there.
        tokio::spawn(connection);
        Ok(Open { sender, address })
    }

    /// Sends a request, and keeps the connection if all is well.
    async fn send(
        &self,
        mut open: Open,
        (method, path, parameters): (&Method, &str, &Map<String, Value>),
    ) -> Result<(StatusCode, Bytes), Failure> {
        let mut request = Request::builder().method(method).header(HOST, &open.address);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = if [Method::GET, Method::DELETE].contains(method) {
            request.uri(query(path, parameters)).body(Full::default())
        } else {
            let body = serde_json::to_vec(parameters).map_err(|error| self.senseless(error))?;
            let request = request.uri(path).header(CONTENT_TYPE, "application/json");
            request.body(Full::new(Bytes::from(body)))
        };
        let request = request.map_err(|error| self.senseless(error))?;
        let response = open.sender.send_request(request).await;
        let response = response.map_err(|error| self.broken(error))?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let answer = answer.map_err(|error| {
            let is_long = error.is::<LengthLimitError>();
            if is_long { self.senseless(error) } else { self.broken(error) }
        })?;
        self.kept.replace(Some(open));
        Ok((status, answer.to_bytes()))
    }

    async fn connect(&self) -> Result<Stream, Failure> {
        let connecting = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            match &self.trust {
                Some(trust) => Stream::dial(stream, trust).await,
                None => Ok(Stream::new(stream)),
            }
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        connected.map_err(|source| {
            let server = self.server();
            // A server that TLS refuses was reached.
            let advice = match source.kind() {
                io::ErrorKind::InvalidData => "",
                _ => ". Is the server running, and are these its AdminAddress and AdminPort?",
            };
            let text = format!("Error connecting to the admin side of {server}: {source}{advice}");
            Failure::with(NOT_CONNECTED, text)
        })
    }
}

/// The members of a JSON object that are there, as parameters of a request.
pub(in crate::commands) fn members(object: Value) -> Map<String, Value> {
    let Value::Object(mut members) = object else { return Map::new() };
    members.retain(|_, value| !value.is_null());
    members
}

/// A path with parameters, which are texts.
fn query(path: &str, parameters: &Map<String, Value>) -> String {
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
