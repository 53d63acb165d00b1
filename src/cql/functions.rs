//! Functions on values: dates and UUIDs, blobs, tokens, JSON.

use super::ast::{QualifiedName, Term};
use super::error::CqlError;
use super::terms::{Expression, Receiver, Typing, Value, natural_type};
use crate::base::lock::{Mutex, rank};
use crate::model::types::{
    CqlType, Native, can_cast, days_of_millis, millis_of_days, millis_of_timeuuid,
};
use crate::service::Partitioner;
use std::sync::Arc;
use uuid::{Builder, Uuid};

/// The moment and the place of an execution.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    /// Microseconds since the Unix epoch.
    pub(super) micros: i64,
    pub(super) chance: Arc<Chance>,
    pub(super) partitioner: Partitioner,
}

/// Source of UUIDs.
#[derive(Debug)]
pub(super) struct Chance(Mutex<rank::Last, UuidState>);

#[derive(Debug)]
struct UuidState {
    random: fastrand::Rng,
    /// The last tick that an element of a list has got.
    last_tick: i64,
}

impl Chance {
    /// Random numbers from this seed.
    pub(super) fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self(Mutex::new(UuidState { random, last_tick: i64::MIN }))
    }

    fn bits(&self) -> u128 {
        self.0.lock().random.u128(..)
    }

    /// The first of some ticks after the Unix epoch that nothing else gets, for elements that are
    /// added to lists at this time.
    pub(super) fn list_ticks(&self, micros: i64, count: usize) -> i64 {
        let mut state = self.0.lock();
        let first = (micros * TICKS).max(state.last_tick.saturating_add(1));
        state.last_tick = first + count as i64 - 1;
        first
    }

    /// A UUID of version 1 for this time.
    pub(super) fn time_uuid(&self, micros: i64) -> Uuid {
        self.uuid_at(micros * TICKS)
    }

    /// A UUID of version 1 for this tick after the Unix epoch.
    pub(super) fn uuid_at(&self, tick: i64) -> Uuid {
        let (ticks, bits) = (tick + GREGORIAN, self.bits());
        let node: [u8; 6] = bits.to_be_bytes()[..6].try_into().unwrap_or_default();
        Builder::from_gregorian_timestamp(ticks as u64, bits as u16 & 0x3fff, &node).into_uuid()
    }

    fn random_uuid(&self) -> Uuid {
        Builder::from_random_bytes(self.bits().to_be_bytes()).into_uuid()
    }
}

/// A function with the types of its arguments and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Vec<CqlType>,
    pub(super) returns: CqlType,
    body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Now,
    RandomUuid,
    /// The least (or the greatest) `timeuuid` of a time.
    TimeuuidAt {
        is_greatest: bool,
    },
    ToDate,
    ToTimestamp,
    ToUnixTimestamp,
    /// The same bytes under another type.
    SameBytes,
    Token,
    ToJson,
    FromJson,
    Cast,
}

impl Call {
    /// A cast to a native type.
    pub(super) fn cast(from: &CqlType, to: Native) -> Result<Self, CqlError> {
        let returns = CqlType::Native(to);
        if !from.native().is_some_and(|from| can_cast(from, to)) {
            return Err(CqlError::invalid(format!("{from} cannot be cast to {returns}")));
        }
        let name = format!("cast_as_{returns}");
        Ok(Self { name, arguments: vec![from.clone()], returns, body: Body::Cast })
    }

    fn failure(&self, why: &impl ToString) -> CqlError {
        let arguments = self.arguments.iter().map(ToString::to_string).collect();
        CqlError::function_failure(&self.name, arguments, why.to_string())
    }

    /// The result for these arguments. Most functions of null are null.
    pub(super) fn evaluate(
        &self,
        arguments: &[Value<'_>],
        moment: &Moment,
    ) -> Result<Option<Vec<u8>>, CqlError> {
        let first = arguments.first().and_then(|it| it.as_deref());
        for (of_type, value) in self.arguments.iter().zip(arguments) {
            if let Some(value) = value {
                of_type.validate(value).map_err(CqlError::invalid_value)?;
            }
        }
        match self.body {
            Body::Now => {
                return Ok(Some(moment.chance.time_uuid(moment.micros).as_bytes().to_vec()));
            }
            Body::RandomUuid => return Ok(Some(moment.chance.random_uuid().as_bytes().to_vec())),
            Body::Token => {
                let parts: Option<Vec<&[u8]>> = arguments.iter().map(|it| it.as_deref()).collect();
                return Ok(parts.map(|parts| token(moment.partitioner, &parts)));
            }
            Body::ToJson => {
                let json =
                    first.map_or("null".to_owned(), |value| self.arguments[0].to_json(value));
                return Ok(Some(json.into_bytes()));
            }
            _ => {}
        }
        let Some(value) = first else { return Ok(None) };
        if value.is_empty() && self.body != Body::SameBytes {
            return Ok(None);
        }
        match self.body {
            Body::SameBytes => {
                self.returns.validate(value).map_err(|error| {
                    self.failure(&format!(
                        "In call to function {}, value 0x{} is not a valid binary representation \
                         for type {}: {error}",
                        self.name,
                        crate::base::hex::hex(value),
                        self.returns
                    ))
                })?;
                Ok(Some(value.to_vec()))
            }
            Body::FromJson => {
                let text = String::from_utf8_lossy(value);
                let bytes = self.returns.from_json(&text);
                bytes.map_err(|error| self.failure(&error))
            }
            Body::Cast => {
                let (Some(from), Some(to)) = (self.arguments[0].native(), self.returns.native())
                else {
                    return Ok(None);
                };
                from.cast(to, value).map_err(|error| self.failure(&error))
            }
            Body::TimeuuidAt { is_greatest } => {
                Ok(Some(timeuuid_at(millis(&self.arguments[0], value), is_greatest).to_vec()))
            }
            Body::ToDate => {
                let day = days_of_millis(millis(&self.arguments[0], value));
                Ok(day.map(|day| day.to_be_bytes().to_vec()))
            }
            Body::ToTimestamp | Body::ToUnixTimestamp => {
                Ok(Some(millis(&self.arguments[0], value).to_be_bytes().to_vec()))
            }
            Body::Now | Body::RandomUuid | Body::Token | Body::ToJson => Ok(None),
        }
    }
}

/// Milliseconds since the Unix epoch of a `timeuuid`, `timestamp` or `date`.
fn millis(of_type: &CqlType, value: &[u8]) -> i64 {
    match (of_type, value.first_chunk()) {
        (CqlType::Native(Native::Timeuuid), _) => millis_of_timeuuid(value).unwrap_or_default(),
        (CqlType::Native(Native::Date), Some(day)) => millis_of_days(u32::from_be_bytes(*day)),
        _ => value.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes)),
    }
}

/// Ticks of a microsecond.
const TICKS: i64 = 10;

/// Ticks of 100 nanoseconds from the start of the Gregorian calendar to the Unix epoch.
const GREGORIAN: i64 = 0x01B2_1DD2_1381_4000;

/// The least or the greatest UUID of a millisecond, by the order of `timeuuid`. Unlike in 3.11, its
/// bytes are unsigned: so the files of 0.6 are sorted.
fn timeuuid_at(millis: i64, is_greatest: bool) -> [u8; 16] {
    let ticks = millis.wrapping_mul(10_000).wrapping_add(GREGORIAN);
    let ticks = ticks.wrapping_add(if is_greatest { 9_999 } else { 0 }) as u64;
    let high = (ticks << 32) | (ticks >> 16 & 0xffff_0000) | 0x1000 | (ticks >> 48 & 0x0fff);
    let low = if is_greatest { u64::MAX } else { 0 };
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// The token of a partition key as a value of [`token_type`].
pub(super) fn token(partitioner: Partitioner, parts: &[&[u8]]) -> Vec<u8> {
    let token = partitioner.token(&super::rows::partition_key(parts));
    match partitioner {
        Partitioner::Random => {
            let text = partitioner.format_token(&token);
            // The text of such a token is a number.
            CqlType::Native(Native::Varint).from_string(&text).unwrap_or_default()
        }
        _ => partitioner.format_token(&token).into_bytes(),
    }
}

/// The type of tokens.
pub(super) fn token_type(partitioner: Partitioner) -> CqlType {
    CqlType::Native(match partitioner {
        Partitioner::Random => Native::Varint,
        _ => Native::Text,
    })
}

/// Finds the function of a call in a term, and gives its arguments their types.
pub(super) fn resolve_terms(
    name: &QualifiedName,
    arguments: &[Term],
    receiver: Option<&Receiver>,
    typing: &mut Typing<'_>,
) -> Result<(Call, Vec<Expression>), CqlError> {
    let call = resolve(name, &known(arguments, typing), receiver.map(|it| &it.of_type))?;
    let context = receiver.cloned().unwrap_or_else(|| Receiver {
        keyspace: Arc::from(""),
        table: Arc::from(""),
        name: String::new(),
        of_type: call.returns.clone(),
    });
    let typed = arguments.iter().zip(&call.arguments).enumerate().map(|(at, (term, of_type))| {
        let argument = context.part(format!("arg{at}({})", call.name), of_type.clone());
        Expression::new(term, &argument, typing)
    });
    let typed = typed.collect::<Result<_, _>>()?;
    Ok((call, typed))
}

/// The types that terms have by themselves.
fn known(terms: &[Term], typing: &Typing<'_>) -> Vec<Option<CqlType>> {
    let of_term = |term: &Term| match term {
        Term::Call(name, arguments) => {
            resolve(name, &known(arguments, typing), None).ok().map(|call| call.returns)
        }
        other => natural_type(other, typing),
    };
    terms.iter().map(of_term).collect()
}

/// Finds the function of this name for arguments of these types, where they are known.
pub(super) fn resolve(
    name: &QualifiedName,
    known: &[Option<CqlType>],
    receiver: Option<&CqlType>,
) -> Result<Call, CqlError> {
    let special = match (name.name.as_str(), receiver) {
        ("tojson", Some(_)) => Some("toJson() may only be used within the selection clause"),
        ("fromjson", None) => Some("fromJson() cannot be used in the selection clause"),
        _ => None,
    };
    if let Some(why) = special {
        return Err(CqlError::invalid(why));
    }
    let candidates = candidates(&name.name, known, receiver);
    if candidates.is_empty() || name.keyspace.as_deref().is_some_and(|it| it != "system") {
        return Err(CqlError::invalid(format!("Unknown function '{}'", name.name)));
    }
    let takes = |call: &&Call| {
        call.arguments.len() == known.len()
            && call.arguments.iter().zip(known).all(|(wanted, given)| {
                given
                    .as_ref()
                    .is_none_or(|given| wanted.assignable_from(given) || weakly(wanted, given))
            })
    };
    let is_exact = |call: &&Call| {
        call.arguments.iter().zip(known).all(|(a, b)| b.as_ref().is_none_or(|b| a == b))
    };
    let mut fitting: Vec<&Call> = candidates.iter().filter(takes).collect();
    if fitting.len() > 1 && fitting.iter().any(is_exact) {
        fitting.retain(is_exact);
    }
    match fitting[..] {
        [only] => Ok(only.clone()),
        [] if candidates.len() == 1 => {
            let only = &candidates[0];
            if only.arguments.len() != known.len() {
                return Err(CqlError::invalid(format!(
                    "Invalid number of arguments in call to function {}: {} required but {} \
                     provided",
                    only.name,
                    only.arguments.len(),
                    known.len()
                )));
            }
            Err(CqlError::invalid(format!(
                "Type error: arguments of function {} have other types",
                only.name
            )))
        }
        [] => Err(CqlError::invalid(format!(
            "Invalid call to function {}, none of its type signatures match",
            name.name
        ))),
        _ => Err(CqlError::invalid(format!(
            "Ambiguous call to function {}: use type casts to disambiguate",
            name.name
        ))),
    }
}

/// Whether a constant of this natural type may be one of another.
fn weakly(wanted: &CqlType, given: &CqlType) -> bool {
    use Native::{
        Ascii, Bigint, Date, Decimal, Double, Float, Inet, Int, Smallint, Text, Time, Timestamp,
        Timeuuid, Tinyint, Uuid, Varint,
    };
    match (wanted, given) {
        (CqlType::Native(wanted), CqlType::Native(Int | Bigint | Varint)) => matches!(
            wanted,
            Tinyint
                | Smallint
                | Int
                | Bigint
                | Varint
                | Float
                | Double
                | Decimal
                | Timestamp
                | Date
        ),
        (CqlType::Native(wanted), CqlType::Native(Ascii | Text)) => {
            matches!(wanted, Ascii | Text | Inet | Timestamp | Date | Time)
        }
        (CqlType::Native(wanted), CqlType::Native(Double)) => {
            matches!(wanted, Float | Double | Decimal)
        }
        (CqlType::Native(wanted), CqlType::Native(Uuid)) => matches!(wanted, Uuid | Timeuuid),
        _ => false,
    }
}

fn candidates(name: &str, known: &[Option<CqlType>], receiver: Option<&CqlType>) -> Vec<Call> {
    use Native::{Bigint, Date, Text, Timestamp, Timeuuid};
    let native = CqlType::Native;
    let call = |arguments: &[CqlType], returns: CqlType, body: Body| Call {
        name: format!("system.{name}"),
        arguments: arguments.to_vec(),
        returns,
        body,
    };
    let one =
        |argument: Native, returns: Native, body| call(&[native(argument)], native(returns), body);
    match name {
        "now" => vec![call(&[], native(Timeuuid), Body::Now)],
        "uuid" => vec![call(&[], native(Native::Uuid), Body::RandomUuid)],
        "mintimeuuid" => vec![one(Timestamp, Timeuuid, Body::TimeuuidAt { is_greatest: false })],
        "maxtimeuuid" => vec![one(Timestamp, Timeuuid, Body::TimeuuidAt { is_greatest: true })],
        "dateof" => vec![one(Timeuuid, Timestamp, Body::ToTimestamp)],
        "unixtimestampof" => vec![one(Timeuuid, Bigint, Body::ToUnixTimestamp)],
        "todate" => vec![one(Timeuuid, Date, Body::ToDate), one(Timestamp, Date, Body::ToDate)],
        "totimestamp" => {
            vec![
                one(Timeuuid, Timestamp, Body::ToTimestamp),
                one(Date, Timestamp, Body::ToTimestamp),
            ]
        }
        "tounixtimestamp" => [Timeuuid, Timestamp, Date]
            .map(|argument| one(argument, Bigint, Body::ToUnixTimestamp))
            .to_vec(),
        "tojson" => {
            let argument = known.first().cloned().flatten();
            vec![call(&[argument.unwrap_or(native(Text))], native(Text), Body::ToJson)]
        }
        "fromjson" => {
            let returns = receiver.cloned();
            returns.into_iter().map(|it| call(&[native(Text)], it, Body::FromJson)).collect()
        }
        _ => {
            let blob = native(Native::Blob);
            let by_name = Native::from_name;
            let to = name.strip_prefix("blobas").and_then(by_name);
            let from = name.strip_suffix("asblob").and_then(by_name);
            match (from, to) {
                (Some(from), _) => vec![call(&[native(from)], blob, Body::SameBytes)],
                (_, Some(to)) => vec![call(&[blob], native(to), Body::SameBytes)],
                _ => Vec::new(),
            }
        }
    }
}

/// `token(…)` of the columns of a partition key.
pub(super) fn token_call(key: Vec<CqlType>, partitioner: Partitioner) -> Call {
    Call {
        name: "system.token".to_owned(),
        arguments: key,
        returns: token_type(partitioner),
        body: Body::Token,
    }
}
