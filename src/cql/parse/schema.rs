//! CREATE, ALTER and DROP.

use super::super::ast::{
    AlterTable, AlterType, ColumnDefinition, ConstantKind, CreateTable, Properties, Property,
    SchemaStatement, Statement, Term, TypeName,
};
use super::lexer::Kind;
use super::{BRACES, PARENTHESES, Parse, Parser, shorten};
use std::collections::HashSet;

/// First words of things that are not here, with their names.
const UNSUPPORTED: [(&str, &str); 8] = [
    ("index", "secondary indexes"),
    ("custom", "secondary indexes"),
    ("materialized", "materialized views"),
    ("function", "user-defined functions"),
    ("aggregate", "user-defined aggregates"),
    ("role", "roles and permissions"),
    ("user", "roles and permissions"),
    ("trigger", "triggers"),
];

/// First words of things that are here, with the names that [`Parser::schema_statement`] uses.
const SUPPORTED: [(&str, &str); 5] = [
    ("keyspace", "keyspace"),
    ("schema", "keyspace"),
    ("table", "table"),
    ("columnfamily", "table"),
    ("type", "type"),
];

impl Parser<'_> {
    pub(super) fn schema_statement(&mut self) -> Parse<Statement> {
        let verb = self.bump().text.to_ascii_lowercase();
        let replaces = verb == "create" && self.take_words(&["or", "replace"])?;
        if let Some((_, what)) = UNSUPPORTED.iter().find(|(word, _)| self.is_word(word)) {
            return Ok(Statement::Unsupported(what));
        }
        let object = SUPPORTED.iter().find(|(word, _)| !replaces && self.take_word(word));
        let statement = match (verb.as_str(), object.map_or("", |(_, object)| object)) {
            ("create", "keyspace") => self.create_keyspace(),
            ("alter", "keyspace") => self.alter_keyspace(),
            ("drop", "keyspace") => self.drop_keyspace(),
            ("create", "table") => self.create_table().map(SchemaStatement::CreateTable),
            ("alter", "table") => self.alter_table(),
            ("drop", "table") => self.drop_table(),
            ("create", "type") => self.create_type(),
            ("alter", "type") => self.alter_type(),
            ("drop", "type") => self.drop_type(),
            _ => Err(self.unexpected()),
        };
        statement.map(Statement::Schema)
    }

    fn if_not_exists(&mut self) -> Parse<bool> {
        self.take_words(&["if", "not", "exists"])
    }

    fn if_exists(&mut self) -> Parse<bool> {
        self.take_words(&["if", "exists"])
    }

    fn create_keyspace(&mut self) -> Parse<SchemaStatement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.keyspace_name()?;
        let properties = self.properties()?;
        Ok(SchemaStatement::CreateKeyspace { name, if_not_exists, properties })
    }

    fn alter_keyspace(&mut self) -> Parse<SchemaStatement> {
        let name = self.keyspace_name()?;
        Ok(SchemaStatement::AlterKeyspace { name, properties: self.properties()? })
    }

    fn drop_keyspace(&mut self) -> Parse<SchemaStatement> {
        let if_exists = self.if_exists()?;
        Ok(SchemaStatement::DropKeyspace { name: self.keyspace_name()?, if_exists })
    }

    fn create_table(&mut self) -> Parse<CreateTable> {
        let if_not_exists = self.if_not_exists()?;
        let table = self.table_name()?;
        let mut created = CreateTable {
            table,
            if_not_exists,
            columns: Vec::new(),
            primary_keys: Vec::new(),
            is_compact: false,
            clustering_order: Vec::new(),
            properties: Vec::new(),
        };
        self.definitions(|it| it.column_or_key(&mut created))?;
        if self.take_word("with") {
            self.table_property(&mut created)?;
            while self.take_word("and") {
                self.table_property(&mut created)?;
            }
            self.refuse_duplicates(created.properties.iter().map(|(name, _)| name))?;
        }
        Ok(created)
    }

    /// Definitions in parentheses. There may be nothing between commas and after the last.
    fn definitions(&mut self, mut item: impl FnMut(&mut Self) -> Parse<()>) -> Parse<()> {
        self.enclosed(PARENTHESES, |it| {
            item(it)?;
            while it.take(",") {
                if !it.is(",") && !it.is(")") {
                    item(it)?;
                }
            }
            Ok(())
        })
    }

    /// A column, or PRIMARY KEY with its columns.
    fn column_or_key(&mut self, created: &mut CreateTable) -> Parse<()> {
        if self.take_words(&["primary", "key"])? {
            let key = self.enclosed(PARENTHESES, |it| {
                let partition = it.one_or_several(Self::name)?;
                let clustering = if it.take(",") { it.list(Self::name)? } else { Vec::new() };
                Ok((partition, clustering))
            })?;
            created.primary_keys.push(key);
            return Ok(());
        }
        let (name, of_type) = self.typed_name()?;
        let is_static = self.take_word("static");
        if self.take_words(&["primary", "key"])? {
            created.primary_keys.push((vec![name.clone()], Vec::new()));
        }
        created.columns.push(ColumnDefinition { name, of_type, is_static });
        Ok(())
    }

    fn table_property(&mut self, created: &mut CreateTable) -> Parse<()> {
        if self.is_word("compact") && self.peek(1).is_word("storage") {
            self.expect_words(&["compact", "storage"])?;
            created.is_compact = true;
        } else if self.is_word("clustering") && self.peek(1).is_word("order") {
            self.expect_words(&["clustering", "order", "by"])?;
            created.clustering_order.extend(self.parenthesized(Self::clustering_order)?);
        } else {
            created.properties.push(self.property()?);
        }
        Ok(())
    }

    /// A column with ASC or DESC, and whether it descends.
    fn clustering_order(&mut self) -> Parse<(String, bool)> {
        let name = self.name()?;
        if self.take_word("asc") {
            Ok((name, false))
        } else if self.take_word("desc") {
            Ok((name, true))
        } else {
            Err(self.unexpected())
        }
    }

    fn alter_table(&mut self) -> Parse<SchemaStatement> {
        let table = self.table_name()?;
        let change = if self.take_word("add") {
            AlterTable::Add(self.one_or_several(Self::column_definition)?)
        } else if self.take_word("drop") {
            self.drop_columns()?
        } else if self.take_word("alter") {
            let column = self.column()?;
            self.expect_words(&["type"])?;
            AlterTable::Type(column, self.type_name()?)
        } else if self.take_word("rename") {
            AlterTable::Rename(self.conjunction(Self::renaming)?)
        } else if self.is_word("with") {
            AlterTable::With(self.properties()?)
        } else {
            return Err(self.unexpected());
        };
        Ok(SchemaStatement::AlterTable(table, change))
    }

    fn drop_columns(&mut self) -> Parse<AlterTable> {
        if self.is_word("compact") && self.peek(1).is_word("storage") {
            self.expect_words(&["compact", "storage"])?;
            return Ok(AlterTable::DropCompactStorage);
        }
        let columns = self.one_or_several(Self::column)?;
        let timestamp = self.clause(&["using", "timestamp"], |it| match it.peek(0).kind {
            Kind::Constant(ConstantKind::Integer) => it.simple_term(),
            _ => Err(it.unexpected()),
        })?;
        Ok(AlterTable::Drop(columns, timestamp))
    }

    /// One item, or several in parentheses.
    fn one_or_several<T>(&mut self, item: impl Fn(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        if self.is("(") { self.parenthesized(item) } else { Ok(vec![item(self)?]) }
    }

    fn column_definition(&mut self) -> Parse<ColumnDefinition> {
        let (name, of_type) = self.typed_name()?;
        Ok(ColumnDefinition { name, of_type, is_static: self.take_word("static") })
    }

    fn typed_name(&mut self) -> Parse<(String, TypeName)> {
        Ok((self.name()?, self.type_name()?))
    }

    /// `a TO b`.
    fn renaming(&mut self) -> Parse<(String, String)> {
        let from = self.column()?;
        self.expect_words(&["to"])?;
        Ok((from, self.name()?))
    }

    fn drop_table(&mut self) -> Parse<SchemaStatement> {
        let if_exists = self.if_exists()?;
        Ok(SchemaStatement::DropTable { table: self.table_name()?, if_exists })
    }

    fn create_type(&mut self) -> Parse<SchemaStatement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_type_name()?;
        let mut fields = Vec::new();
        self.definitions(|it| {
            fields.push(it.typed_name()?);
            Ok(())
        })?;
        Ok(SchemaStatement::CreateType { name, if_not_exists, fields })
    }

    fn alter_type(&mut self) -> Parse<SchemaStatement> {
        let name = self.user_type_name()?;
        let change = if self.take_word("add") {
            let (field, of_type) = self.typed_name()?;
            AlterType::Add(field, of_type)
        } else if self.take_word("alter") {
            let field = self.name()?;
            self.expect_words(&["type"])?;
            AlterType::Type(field, self.type_name()?)
        } else {
            self.expect_words(&["rename"])?;
            AlterType::Rename(self.conjunction(Self::renaming)?)
        };
        Ok(SchemaStatement::AlterType(name, change))
    }

    fn drop_type(&mut self) -> Parse<SchemaStatement> {
        let if_exists = self.if_exists()?;
        Ok(SchemaStatement::DropType { name: self.user_type_name()?, if_exists })
    }

    /// WITH and properties.
    fn properties(&mut self) -> Parse<Properties> {
        self.expect_words(&["with"])?;
        let properties = self.conjunction(Self::property)?;
        self.refuse_duplicates(properties.iter().map(|(name, _)| name))?;
        Ok(properties)
    }

    fn property(&mut self) -> Parse<(String, Property)> {
        let name = self.name()?;
        self.expect("=")?;
        let token = self.peek(0);
        if self.is("{") {
            let entries = self.listed(BRACES, Self::property_entry)?;
            self.refuse_duplicates(entries.iter().map(|(key, _)| key))?;
            return Ok((name, Property::Map(entries)));
        }
        if !matches!(token.kind, Kind::Constant(_) | Kind::Word) {
            return Err(self.unexpected());
        }
        self.bump();
        Ok((name, Property::Text(token.value())))
    }

    /// An entry of a map of constants.
    fn property_entry(&mut self) -> Parse<(String, String)> {
        let key = self.property_constant(|it| format!("Invalid property name: {it}"))?;
        self.expect(":")?;
        let value = self.property_constant(|it| {
            format!("Invalid property value: {it} for property: '{}'", shorten(&key))
        })?;
        Ok((key, value))
    }

    fn property_constant(&mut self, complaint: impl Fn(&str) -> String) -> Parse<String> {
        let (term, hint) = match self.term()? {
            Term::Constant(_, text) => return Ok(text),
            term @ Term::Marker(_) => (term, " (bind variables are not supported in DDL queries)"),
            term => (term, ""),
        };
        let written = shorten(&term.to_string());
        Err(self.error(complaint(&written) + hint))
    }

    fn refuse_duplicates<'n>(&mut self, names: impl Iterator<Item = &'n String>) -> Parse<()> {
        let mut seen = HashSet::new();
        for name in names {
            if !seen.insert(name) {
                return Err(
                    self.error(format!("Multiple definition for property '{}'", shorten(name)))
                );
            }
        }
        Ok(())
    }
}
