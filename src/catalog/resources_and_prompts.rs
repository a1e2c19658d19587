//! Resources, resource templates and prompts, as described by their server.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Fields of an item that only a host uses: to show the item, or to act on it. Agent code does not get them, and no request depends on
/// them. Absent fields are left out of the JSON. So an approval by an older version of this program, which did not read these fields, stays
/// valid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFields {
    /// The audience of the item (`audience`), and its importance (`priority`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
    /// The size of a resource in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Json>,
    /// A list of icons, each with `src`: a URL with `https:`, or the image itself with `data:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Json>,
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Json>,
}

/// A resource that a server lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    pub uri: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(flatten)]
    pub host: HostFields,
}

/// A resource template (RFC 6570), which is one entry for all resources whose URIs match it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    pub uri_template: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(flatten)]
    pub host: HostFields,
}

/// A prompt that a server lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
    #[serde(flatten)]
    pub host: HostFields,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptArgument {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

impl Resource {
    /// Returns whether reading this resource has the same meaning as reading `other`. The fields for hosts are not compared. A host only
    /// gets the approved ones, and older versions of this program did not read these fields when they approved a resource.
    #[must_use]
    pub fn is_read_as(&self, other: &Self) -> bool {
        let Self { uri, name, title, description, mime_type, host: _ } = self;
        *uri == other.uri
            && *name == other.name
            && *title == other.title
            && *description == other.description
            && *mime_type == other.mime_type
    }
}

/// The fields of a template that decide what reading with it means: URI template, name, title, description and MIME type.
pub type FieldsForReads<'a> = (&'a str, &'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);

impl ResourceTemplate {
    /// Returns the fields that decide what reading with this template means. The fields for hosts are not among them, as in
    /// [`Resource::is_read_as`].
    #[must_use]
    pub fn fields_for_reads(&self) -> FieldsForReads<'_> {
        let Self { uri_template, name, title, description, mime_type, host: _ } = self;
        (uri_template, name, title.as_deref(), description.as_deref(), mime_type.as_deref())
    }

    /// Returns whether reading with this template has the same meaning as reading with `other`.
    #[must_use]
    pub fn is_read_as(&self, other: &Self) -> bool {
        self.fields_for_reads() == other.fields_for_reads()
    }
}

impl Prompt {
    /// Returns whether getting this prompt has the same meaning as getting `other`. The fields for hosts are not compared, as in
    /// [`Resource::is_read_as`].
    #[must_use]
    pub fn is_got_as(&self, other: &Self) -> bool {
        let Self { name, title, description, arguments, host: _ } = self;
        *name == other.name && *title == other.title && *description == other.description && *arguments == other.arguments
    }
}
