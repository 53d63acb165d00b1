//! The macros that mirror the IDL line by line and expand to types, decoders, encoders, tables and
//! the dispatcher.

/// Declares an enum with its numbers: `pub enum Name { One = "ONE" 1, … }`. Which numbers clients
/// of a generation may send, and what they mean by them, its function `meant_by` says.
macro_rules! thrift_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$value_meta:meta])* $value:ident = $text:literal $number:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$value_meta])* $value = $number,)* }

        impl $name {
            /// Names and numbers, to compare with the IDL.
            pub const SCHEMA: $crate::thrift::schema::Enum = $crate::thrift::schema::Enum {
                name: stringify!($name),
                values: &[$(($text, $number)),*],
            };

            /// The name in the IDL.
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $text,)* }
            }

            /// The value with this number.
            pub fn from_number(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$value),)* _ => None }
            }
        }

        impl $crate::thrift::codec::WireType for $name {
            const TYPE: u8 = $crate::thrift::schema::wire_type::I32;
            const KIND: $crate::thrift::schema::Kind =
                $crate::thrift::schema::Kind::Enum(stringify!($name));

            /// To the libraries of 0.4 and 0.5 an enum was a number.
            fn may_be_left_out(version: $crate::config::settings::Release) -> bool {
                version >= $crate::config::settings::Release::V06
            }
        }

        impl<'a> $crate::thrift::codec::Decode<'a> for $name {
            fn decode(
                reader: &mut $crate::thrift::codec::Reader<'a>,
            ) -> Result<Self, $crate::thrift::codec::DecodeError> {
                let unknown = || $crate::thrift::codec::Malformed::EnumNumber.into();
                Self::decode_field(reader)?.ok_or_else(unknown)
            }

            fn decode_field(
                reader: &mut $crate::thrift::codec::Reader<'a>,
            ) -> Result<Option<Self>, $crate::thrift::codec::DecodeError> {
                let version = reader.version();
                reader.i32().map(|number| Self::meant_by(number, version))
            }

            fn dump(&self, dump: &mut $crate::thrift::dump::Dump) {
                dump.text(self.name());
            }
        }

        impl $crate::thrift::encode::Encode<$name> for &$name {
            fn encode(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self as i32).to_be_bytes());
            }
        }
    };
}

/// Declares the exceptions of the IDL as one enum: `Variant: NameInTheIdl { fields }`. The only
/// field that they have is the text `why`.
macro_rules! thrift_exception {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$case_meta:meta])* $case:ident: $idl:ident {
            $($id:literal: $requiredness:ident $field:ident: string)?
        },)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$case_meta])* $case,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$case),*];

            /// Name and fields in the IDL.
            pub const fn schema(self) -> $crate::thrift::schema::Struct {
                match self { $(Self::$case => $crate::thrift::schema::Struct {
                    name: stringify!($idl),
                    fields: &[$($crate::thrift::schema::Field {
                        id: $id,
                        name: stringify!($field),
                        kind: $crate::thrift::schema::Kind::String,
                        requiredness: $crate::thrift::macros::requiredness!($requiredness),
                        default: None,
                    })?],
                },)* }
            }
        }
    };
}

/// Declares a struct with its decoder, table and encoder: `pub struct Name<'a> { 1: required field:
/// Type, … }`. Arguments of methods have another name in the IDL: `pub struct Name<'a> as
/// ("name")`.
macro_rules! thrift_struct {
    ($(#[$meta:meta])* pub struct $name:ident<$life:lifetime> { $($fields:tt)* }) => {
        $crate::thrift::macros::thrift_struct! {
            $(#[$meta])* pub struct $name<$life> as (stringify!($name)) { $($fields)* }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident<$life:lifetime> as ($idl:expr) {}) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name<$life>(std::marker::PhantomData<&$life ()>);

        impl $name<'_> {
            /// Names, numbers and types, to compare with the IDL.
            pub const SCHEMA: $crate::thrift::schema::Struct =
                $crate::thrift::schema::Struct { name: $idl, fields: &[] };
        }

        impl $crate::thrift::codec::WireType for $name<'_> {
            const TYPE: u8 = $crate::thrift::schema::wire_type::STRUCT;
            const KIND: $crate::thrift::schema::Kind = $crate::thrift::schema::Kind::Struct($idl);
        }

        impl<$life> $crate::thrift::codec::Decode<$life> for $name<$life> {
            fn decode(
                reader: &mut $crate::thrift::codec::Reader<$life>,
            ) -> Result<Self, $crate::thrift::codec::DecodeError> {
                while let Some((field_type, _)) = reader.field()? {
                    reader.skip(field_type)?;
                }
                Ok(Self(std::marker::PhantomData))
            }

            fn dump(&self, dump: &mut $crate::thrift::dump::Dump) {
                dump.begin($idl);
                dump.end();
            }
        }

        impl<'target> $crate::thrift::encode::Encode<$name<'target>> for &$name<'_> {
            fn encode(self, out: &mut Vec<u8>) {
                out.push($crate::thrift::schema::wire_type::STOP);
            }
        }

        impl $name<'_> {
            /// Of a method without arguments.
            pub const NONE: Self = Self(std::marker::PhantomData);
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident<$life:lifetime> as ($idl:expr) {
        $($(#[$field_meta:meta])*
        $id:literal: $requiredness:ident $field:ident: $type:ty $(= $default:expr)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name<$life> {
            $($(#[$field_meta])*
            pub $field: $crate::thrift::macros::presence!($requiredness $type),)*
        }

        impl<$life> $name<$life> {
            /// Names, numbers and types, to compare with the IDL.
            pub const SCHEMA: $crate::thrift::schema::Struct = $crate::thrift::schema::Struct {
                name: $idl,
                fields: &[$($crate::thrift::schema::Field {
                    id: $id,
                    name: stringify!($field),
                    kind: <$type as $crate::thrift::codec::WireType>::KIND,
                    requiredness: $crate::thrift::macros::requiredness!($requiredness),
                    default: $crate::thrift::macros::default_text!($($default)?),
                }),*],
            };
        }

        impl $crate::thrift::codec::WireType for $name<'_> {
            const TYPE: u8 = $crate::thrift::schema::wire_type::STRUCT;
            const KIND: $crate::thrift::schema::Kind = $crate::thrift::schema::Kind::Struct($idl);
        }

        impl<$life> $crate::thrift::codec::Decode<$life> for $name<$life> {
            fn decode(
                reader: &mut $crate::thrift::codec::Reader<$life>,
            ) -> Result<Self, $crate::thrift::codec::DecodeError> {
                use $crate::thrift::codec::WireType;
                $(let mut $field: Option<$type> =
                    $crate::thrift::macros::initial!($requiredness reader $type $(, $default)?);)*
                while let Some((field_type, id)) = reader.field()? {
                    match id {
                        $($id if field_type == <$type>::TYPE => {
                            $field = $crate::thrift::codec::Decode::decode_field(reader)?;
                        })*
                        _ => reader.skip(field_type)?,
                    }
                }
                if $($crate::thrift::macros::is_due!($requiredness) && $field.is_none() ||)* false {
                    let mut dump = $crate::thrift::dump::Dump::default();
                    dump.begin($idl);
                    $(
                        let optional = !$crate::thrift::macros::is_due!($requiredness);
                        let default = $crate::thrift::macros::printed!($type $(, $default)?);
                        let value = $field.as_ref().or(default.as_ref());
                        dump.field(stringify!($field), optional, value);
                    )*
                    dump.end();
                    let fields = [$((
                        stringify!($field),
                        <$type>::NUMERIC,
                        $crate::thrift::macros::is_due!($requiredness) && $field.is_none(),
                    )),*];
                    return Err($crate::thrift::codec::DecodeError::missing(dump, &fields));
                }
                Ok(Self { $($field: $crate::thrift::macros::present!($requiredness $field)),* })
            }

            fn dump(&self, dump: &mut $crate::thrift::dump::Dump) {
                dump.begin($idl);
                $($crate::thrift::macros::dump_value!($requiredness self.$field, dump);)*
                dump.end();
            }
        }

        impl<'target> $crate::thrift::encode::Encode<$name<'target>> for &$name<'_> {
            fn encode(self, out: &mut Vec<u8>) {
                #[allow(clippy::allow_attributes, unused_variables)]
                fn encode<$life>(value: &$name<$life>, out: &mut Vec<u8>) {
                    let $name { $($field),* } = value;
                    $($crate::thrift::macros::encode_value!(
                        $requiredness $id, $field, $type, out
                    );)*
                }
                encode(self, out);
                out.push($crate::thrift::schema::wire_type::STOP);
            }
        }

        impl $crate::thrift::codec::Lent for $name<'_> {
            type In<'m> = $name<'m>;
        }

        impl<'target> $crate::thrift::encode::Encode<$name<'target>> for $name<'_> {
            fn encode(self, out: &mut Vec<u8>) {
                $crate::thrift::encode::Encode::<$name<'target>>::encode(&self, out);
            }
        }
    };
}

/// Declares the service: a trait with one method per call, the structs of their arguments, the
/// table of the methods and the dispatcher.
///
/// `[from to] name(ArgsStruct<'a> { fields }) -> Result throws (1: Exception, …);`
macro_rules! thrift_service {
    ($(#[$meta:meta])* pub trait $service:ident {
        $($(#[$method_meta:meta])*
        [$since:ident $until:ident] $method:ident($args:ident<$life:lifetime> {
            $($id:literal: $requiredness:ident $field:ident: $type:ty $(= $default:expr)?,)*
        }) -> $result:ty $(, throws ($($throw_id:literal: $exception:ident),*))?;)*
    }) => {
        $($crate::thrift::macros::thrift_struct! {
            #[doc = concat!("Arguments of `", stringify!($method), "`.")]
            pub struct $args<$life> as (concat!(stringify!($method), "_args")) {
                $(#[doc = concat!("Field ", stringify!($id), " of the arguments.")]
                $id: $requiredness $field: $type $(= $default)?,)*
            }
        }

        impl $crate::thrift::remote::Call for $args<'_> {
            const METHOD: &'static str = stringify!($method);
            const THROWS: &'static [$crate::thrift::schema::Throws] = &[$($(
                $crate::thrift::schema::Throws { id: $throw_id, exception: Exception::$exception }
            ),*)?];
            type Result = $result;

            fn encode(&self, out: &mut Vec<u8>) {
                $crate::thrift::encode::Encode::<Self>::encode(self, out);
            }
        })*

        $(#[$meta])*
        pub trait $service: Send + Sync + 'static {
            /// The state of one connection, such as its login. Made from the client's address.
            type Session: From<std::net::SocketAddr> + Send + Sync + 'static;

            $($(#[$method_meta])*
            fn $method(
                &self,
                session: &Self::Session,
                args: &$args<'_>,
            ) -> impl Future<
                Output = Result<
                    impl $crate::thrift::encode::Encode<$result>,
                    $crate::service::ServiceError,
                >,
            > + Send;)*
        }

        /// The decoded arguments of a call.
        #[allow(non_camel_case_types, clippy::allow_attributes)]
        #[allow(clippy::large_enum_variant, reason = "a box would cost more than a copy")]
        pub(super) enum Arguments<'a> { $($method($args<'a>)),* }

        /// The places of the methods in [`METHODS`].
        #[allow(non_camel_case_types, clippy::allow_attributes)]
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Call { $($method),* }

        /// Every method that some generation has.
        pub static METHODS: &[$crate::thrift::reply::Method] = &[
            $($crate::thrift::reply::Method {
                name: stringify!($method),
                versions: (
                    $crate::config::settings::Release::$since,
                    $crate::config::settings::Release::$until,
                ),
                args: $args::SCHEMA,
                result: <$result as $crate::thrift::codec::WireType>::KIND,
                throws: <$args as $crate::thrift::remote::Call>::THROWS,
                decode: |reader| {
                    $crate::thrift::codec::Decode::decode(reader).map(Arguments::$method)
                },
            }),*
        ];

        /// The table entry of a method. All generations have all of them: an application that
        /// changes only its address, or its library, finds the calls that it knows.
        pub fn method_named(name: &[u8]) -> Option<&'static $crate::thrift::reply::Method> {
            METHODS.iter().find(|method| method.name.as_bytes() == name)
        }

        /// Has the service answer a call, and writes what it says.
        pub(super) async fn dispatch<S: $service>(
            service: &S,
            session: &S::Session,
            args: &Arguments<'_>,
            reply: $crate::thrift::reply::Reply<'_>,
        ) {
            match args {
                $(Arguments::$method(args) => {
                    reply.write::<$result>(service.$method(session, args).await);
                })*
            }
        }
    };
}

/// The type of a field as the struct holds it.
macro_rules! presence {
    (optional $type:ty) => { Option<$type> };
    ($requiredness:ident $type:ty) => { $type };
}

macro_rules! requiredness {
    (required) => {
        $crate::thrift::schema::Requiredness::Required
    };
    (optional) => {
        $crate::thrift::schema::Requiredness::Optional
    };
    (default) => {
        $crate::thrift::schema::Requiredness::Default
    };
}

/// Whether the struct cannot be without the field. One without a word in the IDL has a default
/// value, so that it is only absent after a number that its enum does not have.
macro_rules! is_due {
    (optional) => {
        false
    };
    ($requiredness:ident) => {
        true
    };
}

macro_rules! default_text {
    () => {
        None
    };
    ($default:expr) => {
        Some(stringify!($default))
    };
}

/// The value of a field before anything is read: objects have their default, numbers must be sent,
/// unless the IDL has no word about it.
macro_rules! initial {
    ($requiredness:ident $reader:ident $type:ty) => {
        None
    };
    (default $reader:ident $type:ty, $default:expr) => {
        Some(<$type>::from($default))
    };
    ($requiredness:ident $reader:ident $type:ty, $default:expr) => {
        <$type>::may_be_left_out($reader.version()).then(|| <$type>::from($default))
    };
}

/// The text of an absent field: numbers print their default, objects nothing.
macro_rules! printed {
    ($type:ty) => {
        None::<$type>
    };
    ($type:ty, $default:expr) => {
        if <$type>::NUMERIC { Some(<$type>::from($default)) } else { None }
    };
}

macro_rules! present {
    (optional $field:ident) => {
        $field
    };
    ($requiredness:ident $field:ident) => {
        $field.expect("absence was answered just before")
    };
}

macro_rules! dump_value {
    (optional $this:ident.$field:ident, $dump:ident) => {
        $dump.field(stringify!($field), true, $this.$field.as_ref());
    };
    ($requiredness:ident $this:ident.$field:ident, $dump:ident) => {
        $dump.field(stringify!($field), false, Some(&$this.$field));
    };
}

macro_rules! encode_value {
    (optional $id:literal, $field:ident, $type:ty, $out:ident) => {
        if let Some(value) = $field {
            $crate::thrift::encode::encode_field::<$type>($id, value, $out);
        }
    };
    ($requiredness:ident $id:literal, $field:ident, $type:ty, $out:ident) => {
        $crate::thrift::encode::encode_field::<$type>($id, $field, $out);
    };
}

pub(crate) use {
    default_text, dump_value, encode_value, initial, is_due, presence, present, printed,
    requiredness, thrift_enum, thrift_exception, thrift_service, thrift_struct,
};
