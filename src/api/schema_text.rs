//! What `describe_keyspace` tells of a column family.

use super::Api;
use crate::config::settings::ColumnFamilySettings;
use crate::config::settings::Release;
use crate::model::schema::ColumnFamilySchema;

/// Names and values. Clients instantiate the classes that they find here by their last name.
pub(super) fn properties(api: &Api, family: &ColumnFamilySchema) -> Vec<(&'static str, String)> {
    let mut properties =
        vec![("Type", kind(family).to_owned()), ("CompareWith", family.comparator().class_name())];
    if let Some(subcolumns) = family.subcolumn_comparator() {
        properties.push(("CompareSubcolumnsWith", subcolumns.class_name()));
    }
    if api.version == Release::V04 {
        let settings = api.family_settings(family);
        let minutes = settings.and_then(|s| s.flush_period).map_or(0, |p| p.as_secs() / 60);
        properties.push(("Desc", description_of_04(family, settings)));
        properties.push(("FlushPeriodInMinutes", minutes.to_string()));
    } else {
        properties.push(("Desc", description(family)));
    }
    properties
}

fn kind(family: &ColumnFamilySchema) -> &'static str {
    if family.is_super() { "Super" } else { "Standard" }
}

/// The comment, or what 0.5 and 0.6 make up where there is none. It ends in the identity hash of a
/// Java object, for which any number will do; ours stays the same.
fn description(family: &ColumnFamilySchema) -> String {
    if let Some(comment) = &family.comment {
        return comment.clone();
    }
    let hash = crc32fast::hash(family.to_string().as_bytes());
    format!(
        "{family}\nColumn Family Type: {}\nColumns Sorted By: {}@{hash:x}\n",
        kind(family),
        family.comparator().class_name(),
    )
}

/// The shape of the data, in the words of the configuration.
fn description_of_04(
    family: &ColumnFamilySchema,
    settings: Option<&ColumnFamilySettings>,
) -> String {
    let labels = settings.map(|settings| settings.labels.clone()).unwrap_or_default();
    let columns = format!(
        "{}({}, {}, {})",
        labels.column_map, labels.column_key, labels.column_value, labels.column_timestamp,
    );
    let columns = if family.is_super() {
        format!("{}({}, {columns})", labels.super_column_map, labels.super_column_key)
    } else {
        columns
    };
    format!("{family}({}, {columns})", labels.row_key)
}
