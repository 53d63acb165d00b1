//! Relations of WHERE, and conditions of IF.

use super::super::ast::{Condition, Object, Operator, Relation, Subject, Term};
use super::names::is_name;
use super::{PARENTHESES, Parse, Parser, SQUARE_BRACKETS};

const COMPARISONS: [(&str, Operator); 6] = [
    ("=", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    ("<=", Operator::LessOrEqual),
    (">", Operator::Greater),
    (">=", Operator::GreaterOrEqual),
];

impl Parser<'_> {
    /// Relations with AND between them.
    pub(super) fn relations(&mut self) -> Parse<Vec<Relation>> {
        self.conjunction(Self::relation)
    }

    fn relation(&mut self) -> Parse<Relation> {
        if self.is("(") {
            let after = self.peek(2);
            if is_name(self.peek(1)) && (after.is_symbol(",") || after.is_symbol(")")) {
                return self.relation_of_columns();
            }
            return self.nested(|it| it.enclosed(PARENTHESES, Self::relation));
        }
        if self.take_word("token") {
            let columns = self.parenthesized(Self::column)?;
            return self.relation_of(Subject::Token(columns), &[]);
        }
        let column = self.column()?;
        if self.is("[") {
            let element = self.element()?;
            return self.relation_of(Subject::Element(column, element), &[]);
        }
        self.relation_of(Subject::Column(column), &["in", "contains", "like", "is"])
    }

    /// The condition after IF of UPDATE or DELETE.
    pub(super) fn condition(&mut self) -> Parse<Condition> {
        let after = self.peek(1);
        let is_column = after.is_word("in")
            || ["[", ".", "=", "!=", "<", "<=", ">", ">="].iter().any(|it| after.is_symbol(it));
        if !is_column && self.take_word("exists") {
            return Ok(Condition::Exists);
        }
        self.conjunction(Self::condition_of_column).map(Condition::Relations)
    }

    fn condition_of_column(&mut self) -> Parse<Relation> {
        let column = self.column()?;
        if self.is("[") {
            let element = self.element()?;
            return self.relation_of(Subject::Element(column, element), &["in"]);
        }
        if self.take(".") {
            let field = self.name()?;
            return self.relation_of(Subject::Field(column, field), &["in"]);
        }
        self.relation_of(Subject::Column(column), &["in", "contains"])
    }

    /// `[term]`.
    pub(super) fn element(&mut self) -> Parse<Term> {
        self.enclosed(SQUARE_BRACKETS, Self::term)
    }

    fn comparison(&mut self) -> Option<Operator> {
        let (symbol, operator) = COMPARISONS.iter().find(|(symbol, _)| self.is(symbol))?;
        self.take(symbol);
        Some(*operator)
    }

    /// The rest of a relation. Its operator may be a comparison, or begin with one of the words.
    fn relation_of(&mut self, subject: Subject, words: &[&str]) -> Parse<Relation> {
        if let Some(operator) = self.comparison() {
            return Ok(Relation { subject, operator, object: Object::Term(self.term()?) });
        }
        let Some(word) = words.iter().find(|it| self.is_word(it)) else {
            return Err(self.unexpected());
        };
        self.bump();
        let (operator, object) = match *word {
            "in" => (Operator::In, self.values_of_in(Self::term)?),
            "is" => {
                self.expect_words(&["not", "null"])?;
                (Operator::IsNotNull, Object::Term(Term::Null))
            }
            "like" => (Operator::Like, Object::Term(self.term()?)),
            _ if self.take_word("key") => (Operator::ContainsKey, Object::Term(self.term()?)),
            _ => (Operator::Contains, Object::Term(self.term()?)),
        };
        Ok(Relation { subject, operator, object })
    }

    fn relation_of_columns(&mut self) -> Parse<Relation> {
        let subject = Subject::Columns(self.parenthesized(Self::column)?);
        if self.take_word("in") {
            let object = self.values_of_in(Self::tuple_or_marker)?;
            return Ok(Relation { subject, operator: Operator::In, object });
        }
        let Some(operator) = self.comparison() else { return Err(self.unexpected()) };
        Ok(Relation { subject, operator, object: Object::Term(self.tuple_or_marker()?) })
    }

    /// A marker for all values, or a list of them.
    fn values_of_in(&mut self, value: impl Fn(&mut Self) -> Parse<Term>) -> Parse<Object> {
        if self.is("(") {
            return self.listed(PARENTHESES, value).map(Object::List);
        }
        self.marker().map(Object::Term)
    }

    fn tuple_or_marker(&mut self) -> Parse<Term> {
        if self.is("(") { self.nested(Self::simple_term) } else { self.marker() }
    }
}
