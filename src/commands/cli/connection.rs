//! The server of a session.

use super::mistake::Mistake;
use crate::base::tls::Trust;
use crate::client::Client;
use crate::thrift::idl::{Exception, GetStringPropertyArgs};
use crate::thrift::remote::{Answer, Call, CallError};

/// Keyspace and credentials of a login.
#[derive(Debug, Clone)]
pub(super) struct Login {
    pub(super) keyspace: String,
    pub(super) username: String,
    pub(super) password: String,
}

/// A server, to which a call connects if need be.
pub(super) struct Connection {
    /// Host and port.
    address: Option<(String, u16)>,
    is_framed: bool,
    trust: Option<Trust>,
    login: Option<Login>,
    client: Option<Client>,
}

impl Connection {
    /// A connection to no server yet.
    pub(super) fn new(is_framed: bool, trust: Option<Trust>, login: Option<Login>) -> Self {
        Self { address: None, is_framed, trust, login, client: None }
    }

    pub(super) fn trust(&self) -> Option<&Trust> {
        self.trust.as_ref()
    }

    /// Connects to a server and logs in; returns the name of its cluster.
    pub(super) fn connect(&mut self, host: &str, port: u16) -> Result<String, Mistake> {
        self.client = None;
        self.address = Some((host.to_owned(), port));
        self.ready()?;
        let property = GetStringPropertyArgs { property: "cluster name".into() };
        self.call(&property).map(|name| name.into_owned()).map_err(|error| {
            self.client = None;
            let text = "Exception retrieving information about the cassandra node, check you have \
                        connected to the thrift port.";
            Mistake::new(text).hinted(error.to_string())
        })
    }

    /// Connects again if the connection broke.
    pub(super) fn ready(&mut self) -> Result<(), Mistake> {
        if self.client.as_ref().is_some_and(|client| !client.is_broken()) {
            return Ok(());
        }
        self.client = None;
        let Some((host, port)) = &self.address else {
            return Err(Mistake::new("Not connected to a cassandra instance.").on_output());
        };
        let client = Client::connect((host, *port), self.is_framed, self.trust.as_ref());
        let client = client.map_err(|error| {
            Mistake::new(format!("Exception connecting to {host}/{port} - {error}"))
        })?;
        let client = self.client.insert(client);
        if let Some(Login { keyspace, username, password }) = &self.login {
            client.login(keyspace, username, password).map_err(|error| {
                Mistake::new(match error {
                    CallError::Declared(Exception::Authentication, _) => {
                        "Exception during authentication to the cassandra node, verify you are \
                         using correct credentials."
                            .to_owned()
                    }
                    CallError::Declared(Exception::Authorization, _) => {
                        format!("You are not authorized to use keyspace: {keyspace}")
                    }
                    _ => "Login failure. Did you specify 'keyspace', 'username' and 'password'?"
                        .to_owned(),
                })
            })?;
        }
        Ok(())
    }

    /// Calls a method of the server.
    pub(super) fn call<C: Call>(&mut self, arguments: &C) -> Result<Answer<'_, C>, CallError> {
        match &mut self.client {
            Some(client) => client.call(arguments),
            None => Err(CallError::Broken("there is no connection".to_owned())),
        }
    }
}

impl From<CallError> for Mistake {
    fn from(error: CallError) -> Self {
        Self::new(match error {
            CallError::Declared(Exception::NotFound, _) => "Exception null".to_owned(),
            CallError::Declared(Exception::Unavailable, _) => {
                "Exception Unavailable: too few replicas are alive".to_owned()
            }
            CallError::Declared(Exception::TimedOut, _) => {
                "Exception TimedOut: too few replicas answered in time".to_owned()
            }
            CallError::Declared(_, why) => why,
            CallError::Broken(why) => {
                format!("Exception {why}: the next statement connects again")
            }
            other => format!("Exception {other}"),
        })
    }
}
