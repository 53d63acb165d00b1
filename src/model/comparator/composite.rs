//! Types of names that are made of other types, in the form that 0.8 gave them.
//!
//! ```text
//! composite name   = component*
//! component        = u16 length, that many bytes, u8 end
//! end              = 0 in names of columns; in bounds of slices 1 behind, or 0xff before, all
//!                    names that go on from here
//! ```
//!
//! A name with fewer components comes before those that begin with it. So a slice from
//! `a, end 0` to `a, end 1` has all names whose first component is `a`.
//!
//! [`STATIC`] alone has another form, and comes before all other names that are not empty. 2.0 lets
//! names begin with the same two bytes for what belongs to a row as a whole.

use super::{CLASS_PREFIX, Comparator, CustomComparator, hex};
use crate::base::bytes::ByteWriter;
use std::cmp::Ordering;

/// `ReversedType(T)`: the order of `T` from its end; only the empty name stays the least.
#[derive(Debug)]
pub(super) struct Reversed {
    class_name: String,
    base: Comparator,
    /// Whether it orders whole names, not components.
    is_of_names: bool,
}

impl Reversed {
    pub(super) fn new(base: Comparator, is_of_names: bool) -> Self {
        let class_name = format!("{CLASS_PREFIX}ReversedType({})", base.class_name());
        Self { class_name, base, is_of_names }
    }
}

impl CustomComparator for Reversed {
    fn class_name(&self) -> &str {
        &self.class_name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if self.is_of_names && (a.is_empty() || b.is_empty()) {
            return a.len().cmp(&b.len());
        }
        self.base.compare(b, a)
    }

    fn validate(&self, name: &[u8]) -> Result<(), String> {
        self.base.validate(name).map_err(|invalid| invalid.to_string())
    }

    fn render(&self, name: &[u8]) -> String {
        self.base.render(name)
    }

    fn parse(&self, text: &str) -> Result<Vec<u8>, String> {
        self.base.parse(text)
    }
}

/// `CompositeType(T, U, ...)`: names of several components.
#[derive(Debug)]
pub(super) struct Composite {
    class_name: String,
    components: Vec<Comparator>,
}

/// A component of a name, and its end.
struct Component<'a> {
    value: &'a [u8],
    end: i8,
}

/// Part of a component that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Length,
    Value,
    End,
}

impl Composite {
    pub(super) fn new(components: Vec<Comparator>) -> Self {
        let names: Vec<String> = components.iter().map(Comparator::class_name).collect();
        let class_name = format!("{CLASS_PREFIX}CompositeType({})", names.join(","));
        Self { class_name, components }
    }
}

/// Takes a component from the front of a name.
fn next<'a>(name: &mut &'a [u8]) -> Result<Component<'a>, Cut> {
    let (length, rest) = name.split_first_chunk().ok_or(Cut::Length)?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (value, rest) = rest.split_at_checked(length).ok_or(Cut::Value)?;
    let (end, rest) = rest.split_first().ok_or(Cut::End)?;
    *name = rest;
    Ok(Component { value, end: *end as i8 })
}

impl CustomComparator for Composite {
    fn class_name(&self) -> &str {
        &self.class_name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if a == STATIC || b == STATIC {
            let rank =
                |name: &[u8]| if name == STATIC { 1 } else { 2 * usize::from(!name.is_empty()) };
            return rank(a).cmp(&rank(b));
        }
        let (mut x, mut y) = (a, b);
        for comparator in &self.components {
            if x.is_empty() || y.is_empty() {
                break;
            }
            // Such names never pass validation, but still have an order.
            let (Ok(one), Ok(other)) = (next(&mut x), next(&mut y)) else { return a.cmp(b) };
            let by_value = comparator.compare(one.value, other.value);
            let order = by_value.then_with(|| one.end.signum().cmp(&other.end.signum()));
            if order.is_ne() {
                return order;
            }
        }
        x.is_empty().cmp(&y.is_empty()).reverse().then_with(|| x.cmp(y))
    }

    fn validate(&self, name: &[u8]) -> Result<(), String> {
        let mut rest = if name == STATIC { &[] } else { name };
        for (at, comparator) in self.components.iter().enumerate() {
            if rest.is_empty() {
                return Ok(());
            }
            let component = next(&mut rest).map_err(|cut| match cut {
                Cut::Length => format!("Not enough bytes to read value size of component {at}"),
                Cut::Value => format!("Not enough bytes to read value of component {at}"),
                Cut::End => {
                    format!("Not enough bytes to read the end-of-component byte of component {at}")
                }
            })?;
            comparator.validate(component.value).map_err(|invalid| invalid.to_string())?;
            if component.end != 0 && !rest.is_empty() {
                return Err(format!(
                    "Invalid bytes remaining after an end-of-component at component {at}"
                ));
            }
        }
        match rest {
            [] => Ok(()),
            _ => Err(format!("A name has at most {} components", self.components.len())),
        }
    }

    /// Components with colons between them, and an exclamation mark where a bound of a slice ends.
    fn render(&self, name: &[u8]) -> String {
        if name == STATIC {
            return "static".into();
        }
        let (mut rest, mut shown) = (name, Vec::new());
        for comparator in &self.components {
            if rest.is_empty() {
                break;
            }
            let Ok(component) = next(&mut rest) else { return hex(name) };
            let mark = if component.end == 0 { "" } else { "!" };
            shown.push(format!("{}{mark}", comparator.render(component.value)));
        }
        if rest.is_empty() { shown.join(":") } else { hex(name) }
    }

    /// Components with colons between them. The last may have colons itself, as times have.
    fn parse(&self, text: &str) -> Result<Vec<u8>, String> {
        let parts = text.splitn(self.components.len(), ':').zip(&self.components);
        let parts = parts.map(|(part, comparator)| comparator.parse(part));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        if parts.iter().any(|part| part.len() > usize::from(u16::MAX)) {
            return Err("a component has at most 65535 bytes".to_owned());
        }
        Ok(encode(parts.iter().map(Vec::as_slice), 0))
    }

    fn components(&self) -> &[Comparator] {
        &self.components
    }
}

/// The name of the super column that holds static columns. No component is as long as these bytes
/// say: it is no composite, and comes before all others.
pub const STATIC: &[u8] = &[0xff, 0xff];

/// The name of these components, with this end of the last one: 0, or 0xff and 1 for bounds before
/// and after all names with this beginning.
pub fn encode<'a>(components: impl IntoIterator<Item = &'a [u8]>, end: u8) -> Vec<u8> {
    let mut name = Vec::new();
    for component in components {
        name.put_prefixed(component);
        name.push(0);
    }
    if let Some(last) = name.last_mut() {
        *last = end;
    }
    name
}

/// The components of a name. Ends with `None` where the name is no composite.
pub fn components(name: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = name;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let component = next(&mut rest).ok();
        if component.is_none() {
            rest = &[];
        }
        Some(component.map(|component| component.value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::ComparatorRegistry;
    use crate::model::comparator::tests::sorted;
    use proptest::prelude::*;

    fn by_name(class: &str) -> Comparator {
        ComparatorRegistry::default().resolve(class).unwrap()
    }

    /// A name of these components, the last with this end.
    fn name(components: &[&[u8]], end: u8) -> Vec<u8> {
        let mut name = Vec::new();
        for (at, component) in components.iter().enumerate() {
            name.extend_from_slice(&(component.len() as u16).to_be_bytes());
            name.extend_from_slice(component);
            name.push(if at + 1 == components.len() { end } else { 0 });
        }
        name
    }

    #[test]
    fn the_newest_come_first_when_reversed() {
        let reversed = by_name("ReversedType(LongType)");
        let [one, two] = [1i64, 2].map(i64::to_be_bytes);
        sorted(&reversed, &[b"", &two, &one]);
        assert_eq!(reversed.render(&two), "2");
        assert_eq!(reversed.validate(b"abc").unwrap_err().to_string(), "A long is exactly 8 bytes");
    }

    #[test]
    fn components_count_from_the_front() {
        let composite = by_name("CompositeType(UTF8Type, ReversedType(LongType))");
        let [one, two] = [1i64, 2].map(i64::to_be_bytes);
        let names = [
            Vec::new(),
            STATIC.to_vec(),
            name(&[b"a"], 0xff),
            name(&[b"a"], 0),
            name(&[b"a", &two], 0),
            name(&[b"a", &one], 0),
            name(&[b"a", b""], 0),
            name(&[b"a"], 1),
            name(&[b"aa"], 0),
            name(&[b"b", &two], 0),
        ];
        let sliced: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        sorted(&composite, &sliced);
        assert!(names.iter().all(|name| composite.validate(name).is_ok()));
        let shown = [1, 4, 7].map(|at: usize| composite.render(&names[at]));
        assert_eq!(shown, ["static", "a:2", "a!"]);
    }

    #[test]
    fn names_are_made_of_components_and_taken_apart() {
        let parts =
            |name: &[u8]| components(name).map(|it| it.map(<[u8]>::to_vec)).collect::<Vec<_>>();
        for (components, end) in [(&[][..], 0), (&[&b"a"[..]], 1), (&[b"", b"b"], 0xff)] {
            let name = encode(components.iter().copied(), end);
            assert_eq!(name.last().copied(), components.first().map(|_| end));
            let expected: Vec<_> = components.iter().map(|it| Some(it.to_vec())).collect();
            assert_eq!(parts(&name), expected);
        }
        assert_eq!(parts(STATIC), [None]);
        assert_eq!(parts(b"\0\x01a\0\0\x02b"), [Some(b"a".to_vec()), None]);
    }

    #[test]
    fn what_is_no_composite_is_refused() {
        let composite = by_name("CompositeType(UTF8Type,LongType)");
        let long = name(&[b"a", &[0; 8], b"b"], 0);
        let mut went_on = name(&[b"a"], 1);
        went_on.extend(name(&[&[0; 8]], 0));
        for (name, text) in [
            (&b"\0"[..], "Not enough bytes to read value size of component 0"),
            (b"\0\x05a", "Not enough bytes to read value of component 0"),
            (b"\0\x01a", "Not enough bytes to read the end-of-component byte of component 0"),
            (&name(&[b"a", b"abc"], 0), "A long is exactly 8 bytes"),
            (&went_on, "Invalid bytes remaining after an end-of-component at component 0"),
            (&long, "A name has at most 2 components"),
        ] {
            assert_eq!(composite.validate(name).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn classes_are_found_by_what_they_are_made_of() {
        let registry = ComparatorRegistry::default();
        let composite = registry.resolve(" CompositeType( TimeUUIDType , UTF8Type ) ").unwrap();
        let class = "org.apache.cassandra.db.marshal.CompositeType(\
                     org.apache.cassandra.db.marshal.TimeUUIDType,\
                     org.apache.cassandra.db.marshal.UTF8Type)";
        assert_eq!(composite.class_name(), class);
        assert_eq!(registry.resolve(class), Some(composite));
        let deep = "ReversedType(".repeat(100) + "LongType" + &")".repeat(100);
        for wrong in [
            "CompositeType",
            "CompositeType()",
            "CompositeType(UTF8Type,)",
            "CompositeType(UTF8Type",
            "CompositeType(UTF8Type))",
            "CompositeType(NoSuchType)",
            "ReversedType(LongType,LongType)",
            "LongType(LongType)",
            "ReversedType(LongType)x",
            &deep,
        ] {
            assert_eq!(registry.resolve(wrong), None, "{wrong}");
        }
    }

    fn any_name() -> impl Strategy<Value = Vec<u8>> {
        let component = prop_oneof![Just(Vec::new()), prop::collection::vec(0u8..3, 1..3)];
        let components = prop::collection::vec(component, 0..4);
        let built = (components, prop_oneof![Just(0u8), Just(1), Just(0xff)])
            .prop_map(|(it, end)| name(&it.iter().map(Vec::as_slice).collect::<Vec<_>>(), end));
        let bytes = prop::collection::vec(any::<u8>(), 0..6);
        prop_oneof![1 => Just(STATIC.to_vec()), 8 => built, 2 => bytes]
    }

    proptest! {
        /// Sound names, which alone are ever stored, have a total order.
        #[test]
        fn the_order_is_total(names in prop::collection::vec(any_name(), 3)) {
            let composite = by_name("CompositeType(BytesType,ReversedType(BytesType),BytesType)");
            let sound: Vec<_> = names.iter().filter(|it| composite.validate(it).is_ok()).collect();
            for a in &sound {
                for b in &sound {
                    let order = composite.compare(a, b);
                    prop_assert_eq!(order, composite.compare(b, a).reverse());
                    prop_assert_eq!(order.is_eq(), a == b);
                    for c in &sound {
                        if order.is_le() && composite.compare(b, c).is_le() {
                            prop_assert!(composite.compare(a, c).is_le());
                        }
                    }
                }
            }
        }
    }
}
