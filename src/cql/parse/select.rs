//! SELECT.

use super::super::ast::{Arithmetic, ConstantKind, Select, SelectItem, Selector};
use super::lexer::Kind;
use super::names::is_name;
use super::terms::Operand;
use super::{PARENTHESES, Parse, Parser};

impl Operand for Selector {
    fn operand(parser: &mut Parser<'_>) -> Parse<Self> {
        let mut selector = parser.nested(Parser::simple_selector)?;
        while parser.take(".") {
            parser.reach(parser.deepest + 1)?;
            selector = Self::Field(Box::new(selector), parser.name()?);
        }
        Ok(selector)
    }

    fn join(left: Box<Self>, operator: Arithmetic, right: Box<Self>) -> Self {
        Self::Arithmetic(left, operator, right)
    }

    fn negate(operand: Box<Self>) -> Self {
        Self::Negation(operand)
    }
}

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Parse<Select> {
        self.expect_words(&["select"])?;
        let is_json = self.take_prefix("json");
        let is_distinct = self.take_prefix("distinct");
        let items = if self.take("*") { None } else { Some(self.list(Self::select_item)?) };
        self.expect_words(&["from"])?;
        let table = self.table_name()?;
        let relations = self.clause(&["where"], Self::relations)?.unwrap_or_default();
        let group_by = self.clause(&["group", "by"], |it| it.list(Self::column))?;
        let order_by = self.clause(&["order", "by"], |it| it.list(Self::ordering))?;
        Ok(Select {
            table,
            is_json,
            is_distinct,
            items,
            relations,
            group_by: group_by.unwrap_or_default(),
            order_by: order_by.unwrap_or_default(),
            per_partition_limit: self.clause(&["per", "partition", "limit"], Self::integer)?,
            limit: self.clause(&["limit"], Self::integer)?,
            allows_filtering: self.take_words(&["allow", "filtering"])?,
        })
    }

    /// Takes JSON or DISTINCT, unless it is the name of a column.
    fn take_prefix(&mut self, word: &str) -> bool {
        let after = self.peek(1);
        let is_column = after.kind == Kind::End
            || after.is_word("from")
            || after.is_word("as") && !self.peek(2).is_word("from")
            || [",", ".", "+", "-", "/", "%"].iter().any(|it| after.is_symbol(it));
        !is_column && self.take_word(word)
    }

    fn select_item(&mut self) -> Parse<SelectItem> {
        let selector = self.expression()?;
        Ok(SelectItem { selector, alias: self.clause(&["as"], Self::name)? })
    }

    fn simple_selector(&mut self) -> Parse<Selector> {
        let token = self.peek(0);
        if self.peek(1).is_symbol("(") {
            if token.is_word("writetime") {
                return self.metadata().map(Selector::WriteTime);
            }
            if token.is_word("ttl") {
                return self.metadata().map(Selector::Ttl);
            }
            if token.is_word("cast") {
                return self.cast();
            }
            if token.is_word("count") && self.counts_rows() {
                (0..4).for_each(|_| _ = self.bump());
                return Ok(Selector::CountRows);
            }
        }
        if self.is_call() {
            let name = self.function_name()?;
            let arguments = self.listed(PARENTHESES, Self::expression)?;
            return Ok(Selector::Call(Box::new(name), arguments));
        }
        if is_name(token) || token.kind == Kind::QuotedName {
            return self.column().map(Selector::Column);
        }
        if self.is("(") && !self.is_hint() {
            return self.enclosed(PARENTHESES, Self::expression);
        }
        self.simple_term().map(Selector::Term)
    }

    /// True for the rest of `count(*)` and `count(1)`.
    fn counts_rows(&mut self) -> bool {
        let argument = self.peek(2);
        let is_one = argument.kind == Kind::Constant(ConstantKind::Integer) && argument.text == "1";
        (is_one || argument.is_symbol("*")) && self.peek(3).is_symbol(")")
    }

    /// `(column)` after WRITETIME or TTL.
    fn metadata(&mut self) -> Parse<String> {
        self.bump();
        self.enclosed(PARENTHESES, Self::column)
    }

    fn cast(&mut self) -> Parse<Selector> {
        self.bump();
        self.enclosed(PARENTHESES, |it| {
            let selector = it.expression()?;
            it.expect_words(&["as"])?;
            Ok(Selector::Cast(Box::new(selector), Box::new(it.native_type()?)))
        })
    }

    /// A column, and whether the order descends.
    fn ordering(&mut self) -> Parse<(String, bool)> {
        let column = self.column()?;
        let descends = self.take_word("desc");
        if !descends {
            self.take_word("asc");
        }
        Ok((column, descends))
    }
}
