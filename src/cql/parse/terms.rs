//! Terms, and the arithmetic that they share with selectors.

use super::super::ast::{Arithmetic, ConstantKind, Term};
use super::lexer::Kind;
use super::names::is_name;
use super::{BRACES, PARENTHESES, Parse, Parser, SQUARE_BRACKETS};

const SUM: &[(&str, Arithmetic)] = &[("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
const PRODUCT: &[(&str, Arithmetic)] =
    &[("*", Arithmetic::Multiply), ("/", Arithmetic::Divide), ("%", Arithmetic::Remainder)];

/// Something to calculate with.
pub(super) trait Operand: Sized {
    /// Parses an operand.
    fn operand(parser: &mut Parser<'_>) -> Parse<Self>;

    fn join(left: Box<Self>, operator: Arithmetic, right: Box<Self>) -> Self;

    fn negate(operand: Box<Self>) -> Self;

    /// True if the operator that comes next does not belong to the expression.
    fn is_end(_: &mut Parser<'_>) -> bool {
        false
    }
}

impl Operand for Term {
    fn operand(parser: &mut Parser<'_>) -> Parse<Self> {
        parser.nested(Parser::simple_term)
    }

    fn join(left: Box<Self>, operator: Arithmetic, right: Box<Self>) -> Self {
        Self::Arithmetic(left, operator, right)
    }

    fn negate(operand: Box<Self>) -> Self {
        Self::Negation(operand)
    }

    /// In `a = [1] + a` the plus is one of the assignment.
    fn is_end(parser: &mut Parser<'_>) -> bool {
        let is_call = |symbol: &str| symbol == "(" || symbol == ".";
        parser.is("+") && is_name(parser.peek(1)) && !is_call(parser.peek(2).text)
    }
}

impl Parser<'_> {
    pub(super) fn term(&mut self) -> Parse<Term> {
        self.expression()
    }

    /// A sum of products.
    pub(super) fn expression<T: Operand>(&mut self) -> Parse<T> {
        self.chain(SUM, |it| it.chain(PRODUCT, Self::signed))
    }

    fn signed<T: Operand>(&mut self) -> Parse<T> {
        if self.take("-") {
            return Ok(T::negate(Box::new(self.nested(T::operand)?)));
        }
        T::operand(self)
    }

    /// Operands with operators between them. The first operand gets one level deeper with each
    /// operator, so the depth that it reaches is kept.
    fn chain<T: Operand>(
        &mut self,
        operators: &[(&str, Arithmetic)],
        operand: impl Fn(&mut Self) -> Parse<T>,
    ) -> Parse<T> {
        let outer = std::mem::replace(&mut self.deepest, self.depth);
        let mut left = operand(self)?;
        while let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.is(symbol))
            && !T::is_end(self)
        {
            self.bump();
            self.reach(self.deepest + 1)?;
            let right = self.nested(&operand)?;
            left = T::join(Box::new(left), *operator, Box::new(right));
        }
        self.deepest = self.deepest.max(outer);
        Ok(left)
    }

    /// A term that is not calculated.
    pub(super) fn simple_term(&mut self) -> Parse<Term> {
        let token = self.peek(0);
        if let Kind::Constant(kind) = token.kind {
            self.bump();
            return Ok(Term::Constant(kind, token.value()));
        }
        if self.take_word("null") {
            return Ok(Term::Null);
        }
        if self.is("?") || self.is(":") {
            return self.marker();
        }
        if self.is_hint() {
            let of_type = self.enclosed(PARENTHESES, Self::type_name)?;
            let term = self.nested(Self::simple_term)?;
            return Ok(Term::Hint(Box::new(of_type), Box::new(term)));
        }
        if self.is("(") {
            return self.parenthesized(Self::term).map(Term::Tuple);
        }
        if self.is("[") {
            return self.listed(SQUARE_BRACKETS, Self::term).map(Term::List);
        }
        if self.is("{") {
            return self.braces();
        }
        if self.is_call() {
            let name = self.function_name()?;
            let arguments = self.listed(PARENTHESES, Self::term)?;
            return Ok(Term::Call(Box::new(name), arguments));
        }
        Err(self.unexpected())
    }

    /// A set, a map or a value of a user type.
    fn braces(&mut self) -> Parse<Term> {
        if is_name(self.peek(1)) && self.peek(2).is_symbol(":") {
            return self.listed(BRACES, Self::field).map(Term::Fields);
        }
        self.enclosed(BRACES, |it| {
            if it.is("}") {
                return Ok(Term::Set(Vec::new()));
            }
            let first = it.term()?;
            if !it.take(":") {
                return it.list_after(first, Self::term).map(Term::Set);
            }
            let value = it.term()?;
            it.list_after((first, value), Self::entry).map(Term::Map)
        })
    }

    fn field(&mut self) -> Parse<(String, Term)> {
        let name = self.name()?;
        self.expect(":")?;
        Ok((name, self.term()?))
    }

    /// A key and a value of a map.
    fn entry(&mut self) -> Parse<(Term, Term)> {
        let key = self.term()?;
        self.expect(":")?;
        Ok((key, self.term()?))
    }

    /// `?` or `:name`.
    pub(super) fn marker(&mut self) -> Parse<Term> {
        let name = if self.take("?") {
            None
        } else if self.take(":") {
            Some(self.name()?)
        } else {
            return Err(self.unexpected());
        };
        match u16::try_from(self.markers.len()) {
            Ok(number) if number < u16::MAX => {
                self.markers.push(name);
                Ok(Term::Marker(number))
            }
            _ => Err(self.error("too many markers")),
        }
    }

    pub(super) fn integer(&mut self) -> Parse<Term> {
        self.constant_or_marker(ConstantKind::Integer)
    }

    pub(super) fn constant_or_marker(&mut self, kind: ConstantKind) -> Parse<Term> {
        if self.peek(0).kind == Kind::Constant(kind) { self.simple_term() } else { self.marker() }
    }
}
