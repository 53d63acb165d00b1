//! INSERT, UPDATE, DELETE and BATCH.

use super::super::ast::{
    Assigned, Batch, BatchKind, ConstantKind, Delete, Insert, InsertValues, Modification, Target,
    TargetPart, Term, Update, Using,
};
use super::lexer::Kind;
use super::names::is_name;
use super::{Parse, Parser, shorten};
use std::collections::{HashMap, HashSet};

type Assignment = (Target, Assigned);

/// The extent of an assignment within its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Field,
    /// Some elements, or an increment.
    Elements,
}

impl Parser<'_> {
    pub(super) fn modification(&mut self) -> Parse<Modification> {
        if self.take_word("insert") {
            self.insert().map(Modification::Insert)
        } else if self.take_word("update") {
            self.update().map(Modification::Update)
        } else if self.take_word("delete") {
            self.delete().map(Modification::Delete)
        } else {
            Err(self.expected("K_APPLY"))
        }
    }

    pub(super) fn batch(&mut self) -> Parse<Batch> {
        self.expect_words(&["begin"])?;
        let kind = if self.take_word("unlogged") {
            BatchKind::Unlogged
        } else if self.take_word("counter") {
            BatchKind::Counter
        } else {
            BatchKind::Logged
        };
        self.expect_words(&["batch"])?;
        let using = self.using(true)?;
        let mut statements = Vec::new();
        while !self.take_word("apply") {
            statements.push(self.modification()?);
            self.take(";");
        }
        self.expect_words(&["batch"])?;
        Ok(Batch { kind, using, statements })
    }

    /// USING, if it is there. DELETE takes no time to live.
    fn using(&mut self, takes_ttl: bool) -> Parse<Using> {
        let mut using = Using::default();
        if !self.take_word("using") {
            return Ok(using);
        }
        loop {
            let place = if takes_ttl && self.take_word("ttl") {
                &mut using.ttl
            } else {
                self.expect_words(&["timestamp"])?;
                &mut using.timestamp
            };
            *place = Some(self.integer()?);
            if !takes_ttl || !self.take_word("and") {
                return Ok(using);
            }
        }
    }

    fn insert(&mut self) -> Parse<Insert> {
        self.expect_words(&["into"])?;
        let table = self.table_name()?;
        let values = if self.take_word("json") {
            let document = self.constant_or_marker(ConstantKind::String)?;
            InsertValues::Json { document, default_unset: self.default_unset()? }
        } else {
            let columns = self.parenthesized(Self::column)?;
            self.expect_words(&["values"])?;
            InsertValues::Columns(columns, self.parenthesized(Self::term)?)
        };
        let using_first = self.is_word("using");
        let mut using = self.using(true)?;
        let if_not_exists = self.take_words(&["if", "not", "exists"])?;
        if !using_first {
            using = self.using(true)?;
        }
        Ok(Insert { table, values, if_not_exists, using })
    }

    fn default_unset(&mut self) -> Parse<bool> {
        if !self.take_word("default") || self.take_word("null") {
            return Ok(false);
        }
        self.expect_words(&["unset"])?;
        Ok(true)
    }

    fn update(&mut self) -> Parse<Update> {
        let table = self.table_name()?;
        let using = self.using(true)?;
        self.expect_words(&["set"])?;
        let assignments = self.list(Self::assignment)?;
        self.refuse_conflicts(&assignments)?;
        self.expect_words(&["where"])?;
        let relations = self.relations()?;
        Ok(Update {
            table,
            using,
            assignments,
            relations,
            condition: self.clause(&["if"], Self::condition)?,
        })
    }

    fn delete(&mut self) -> Parse<Delete> {
        let targets = if self.is_word("from") { Vec::new() } else { self.list(Self::target)? };
        self.expect_words(&["from"])?;
        let table = self.table_name()?;
        let using = self.using(false)?;
        self.expect_words(&["where"])?;
        let relations = self.relations()?;
        Ok(Delete {
            table,
            targets,
            using,
            relations,
            condition: self.clause(&["if"], Self::condition)?,
        })
    }

    fn target(&mut self) -> Parse<Target> {
        let column = self.column()?;
        let part = if self.is("[") {
            Some(TargetPart::Element(self.element()?))
        } else if self.take(".") {
            Some(TargetPart::Field(self.name()?))
        } else {
            None
        };
        Ok(Target { column, part })
    }

    fn assignment(&mut self) -> Parse<Assignment> {
        let target = self.target()?;
        let is_whole = target.part.is_none();
        let assigned = if is_whole && self.take("+=") {
            Assigned::Append(self.term()?)
        } else if is_whole && self.take("-=") {
            Assigned::Remove(self.term()?)
        } else {
            self.expect("=")?;
            if is_whole { self.assigned(&target.column)? } else { Assigned::Value(self.term()?) }
        };
        Ok((target, assigned))
    }

    /// The right side of an assignment to a whole column.
    fn assigned(&mut self, column: &str) -> Parse<Assigned> {
        if is_name(self.peek(0)) && !self.is_call() {
            return self.changed(column);
        }
        let term = self.term()?;
        if !self.take("+") {
            return Ok(Assigned::Value(term));
        }
        if self.column()? != column {
            return Err(self.error("Only expressions of the form X = <value> + X are supported."));
        }
        Ok(Assigned::Prepend(term))
    }

    /// `a + x` or `a - x` in `a = a + x`. In `a = a -1` the minus belongs to the number.
    fn changed(&mut self, column: &str) -> Parse<Assigned> {
        let is_same = self.column()? == column;
        let token = self.peek(0);
        let (sign, assigned) = if token.kind == Kind::Constant(ConstantKind::Integer) {
            self.bump();
            let sign = if token.text.starts_with('-') { '-' } else { '+' };
            (sign, Assigned::Append(Term::Constant(ConstantKind::Integer, token.value())))
        } else if self.take("+") {
            ('+', Assigned::Append(self.term()?))
        } else if self.take("-") {
            ('-', Assigned::Remove(self.term()?))
        } else {
            return Err(self.unexpected());
        };
        if !is_same {
            return Err(self.error(format!(
                "Only expressions of the form X = X {sign}<value> are supported."
            )));
        }
        Ok(assigned)
    }

    /// Refuses assignments that cannot all hold: a new value of a column beside any other
    /// assignment to it, or a field beside any but other fields.
    fn refuse_conflicts(&mut self, assignments: &[Assignment]) -> Parse<()> {
        let mut earlier: HashMap<&str, Extent> = HashMap::new();
        let mut fields: HashSet<(&str, &str)> = HashSet::new();
        for (target, assigned) in assignments {
            let column = target.column.as_str();
            let (extent, is_new) = match (&target.part, assigned) {
                (Some(TargetPart::Field(field)), _) => {
                    (Extent::Field, fields.insert((column, field)))
                }
                (None, Assigned::Value(_)) => (Extent::Whole, true),
                _ => (Extent::Elements, true),
            };
            let is_conflict = match (earlier.insert(column, extent), extent) {
                (None, _) => false,
                (Some(Extent::Whole), _) | (_, Extent::Whole) => true,
                (Some(Extent::Field), Extent::Field) => !is_new,
                (Some(earlier), _) => earlier == Extent::Field,
            };
            if is_conflict {
                let column = shorten(column);
                return Err(self.error(format!("Multiple incompatible setting of column {column}")));
            }
        }
        Ok(())
    }
}
