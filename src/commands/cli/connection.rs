//! The server of a session.

use super::mistake::Mistake;
use crate::admin::report::{FamilyTypes, Info};
use crate::base::tls::Trust;
use crate::client::Client;
use crate::commands::nodetool::{self, members};
use crate::commands::output::FAILED;
use crate::thrift::idl::{
    ColumnParent, ConsistencyLevel, Exception, GetCountArgs, GetStringPropertyArgs,
};
use crate::thrift::remote::{Answer, Call, CallError};
use hyper::Method;
use serde_json::json;
use std::time::Duration;

/// How long the admin side may take to tell the types. Most servers have it on another address, or
/// are of Java, whose port 8080 speaks JMX.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

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
    cluster: String,
    /// Where the admin side of a server may listen; 0 for nowhere.
    admin_port: u16,
    /// The admin side, if it is there.
    admin: Option<nodetool::Client>,
}

impl Connection {
    /// A connection to no server yet.
    pub(super) fn new(
        is_framed: bool,
        trust: Option<Trust>,
        login: Option<Login>,
        admin_port: u16,
    ) -> Self {
        let (address, client, cluster, admin) = (None, None, String::new(), None);
        Self { address, is_framed, trust, login, client, cluster, admin_port, admin }
    }

    /// Connects to a server and logs in; returns the name of its cluster.
    pub(super) fn connect(&mut self, host: &str, port: u16) -> Result<&str, Mistake> {
        (self.client, self.admin) = (None, None);
        self.address = Some((host.to_owned(), port));
        self.ready()?;
        Ok(&self.cluster)
    }

    /// Connects again if the connection broke.
    pub(super) fn ready(&mut self) -> Result<(), Mistake> {
        if self.client.as_ref().is_some_and(|client| !client.is_broken()) {
            return Ok(());
        }
        self.client = None;
        self.open()?;
        let property = GetStringPropertyArgs { property: "cluster name".into() };
        let cluster = self.call(&property).map(|name| name.into_owned());
        self.cluster = cluster.map_err(|error| {
            self.client = None;
            let text = "Exception retrieving information about the cassandra node, check you have \
                        connected to the thrift port.";
            Mistake::new(text).hinted(error.to_string())
        })?;
        if self.admin.is_none() {
            self.admin = self.find_admin();
        }
        Ok(())
    }

    /// The admin side of the server, if it can be reached.
    fn find_admin(&self) -> Option<nodetool::Client> {
        let (host, _) = self.address.as_ref().filter(|_| self.admin_port != 0)?;
        let client = nodetool::Client::new(host, self.admin_port, None, ADMIN_TIMEOUT).ok()?;
        let client = client.trusting(self.trust.clone());
        let info: Info = client.get("/api/v1/info").ok()?;
        // The port may be that of another server.
        (info.cluster_name == self.cluster).then_some(client)
    }

    /// The types of a column family as they are now; `None` if nobody tells them. Fails if the
    /// admin side is gone: without types, values would be written that are none of theirs.
    pub(super) fn told(
        &self,
        keyspace: &str,
        family: &str,
    ) -> Result<Option<FamilyTypes>, Mistake> {
        let Some(admin) = &self.admin else { return Ok(None) };
        let choice = members(json!({ "keyspace": keyspace, "column_family": family }));
        match admin.call::<Vec<FamilyTypes>>(&Method::GET, "/api/v1/schema", &choice) {
            Ok(told) => Ok(told.into_iter().next()),
            // There is no such column family.
            Err(failure) if failure.exit_code == FAILED => Ok(None),
            Err(failure) => {
                let why = failure.text;
                let text = format!("the types of {keyspace}.{family} cannot be asked: {why}");
                Err(Mistake::new(text).hinted("after a new connect, assume gives types"))
            }
        }
    }

    /// Why the server refuses a table that it does not describe; `None` if there is none.
    pub(super) fn refusal(&mut self, keyspace: &str, family: &str) -> Option<String> {
        let (column_family, super_column) = (family.into(), None);
        let count = GetCountArgs {
            keyspace: keyspace.into(),
            key: "key".into(),
            column_parent: ColumnParent { column_family, super_column },
            consistency_level: ConsistencyLevel::One,
        };
        match self.call(&count) {
            Err(CallError::Declared(Exception::InvalidRequest, why)) => {
                Some(why).filter(|why| why.contains(" was made over CQL"))
            }
            _ => None,
        }
    }

    fn open(&mut self) -> Result<(), Mistake> {
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
