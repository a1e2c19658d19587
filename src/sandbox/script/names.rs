//! Removes imported and exported names of types, even if the code does not mark them with `type`.

use oxc_ast::ast::{
    ExportNamedDeclaration, ExportSpecifier, IdentifierReference, ImportDeclaration, ImportDeclarationSpecifier, ModuleExportName,
};
use oxc_semantic::SymbolId;
use oxc_span::GetSpan;

use super::edits::next_token;
use super::typescript::Eraser;

impl<'a> Eraser<'a, '_> {
    /// Removes imported names that are only used as types or are not used at all, as TypeScript does. If no name is left, removes the whole
    /// import.
    pub(super) fn erase_import(&mut self, import: &ImportDeclaration<'a>) {
        let Some(specifiers) = import.specifiers.as_ref().filter(|_| !import.import_kind.is_type()) else {
            if import.import_kind.is_type() {
                self.erase_statement(import.span);
            }
            return;
        };
        let gone: Vec<_> = specifiers.iter().filter(|specifier| self.is_type_import(specifier)).collect();
        if gone.is_empty() {
            return;
        }
        if gone.len() == specifiers.len() {
            self.erase_statement(import.span);
            return;
        }
        for specifier in gone {
            let span = specifier.span();
            if let ImportDeclarationSpecifier::ImportNamespaceSpecifier(_) = specifier {
                // In `import name, * as types`, the comma after `name` must be removed too.
                let comma = specifiers.first().map_or(span.start as usize, |first| next_token(self.code, first.span().end as usize));
                self.edits.blank(comma, span.end as usize);
            } else {
                self.erase_listed(span.start as usize, span.end as usize);
            }
        }
    }

    pub(super) fn erase_exports(&mut self, export: &ExportNamedDeclaration<'a>) {
        let from_elsewhere = export.source.is_some();
        for specifier in &export.specifiers {
            if specifier.export_kind.is_type() || !from_elsewhere && self.is_type_export(specifier) {
                self.erase_listed(specifier.span.start as usize, specifier.span.end as usize);
            }
        }
    }

    /// Returns whether a name refers only to a type that is declared in this code.
    pub(super) fn is_a_type(&self, name: &IdentifierReference<'_>) -> bool {
        let symbol = name.reference_id.get().and_then(|reference| self.scoping.get_reference(reference).symbol_id());
        symbol.is_some_and(|symbol| {
            let flags = self.scoping.symbol_flags(symbol);
            !flags.is_import() && !flags.can_be_referenced_by_value() && flags.is_type()
        })
    }

    fn is_type_export(&self, specifier: &ExportSpecifier<'_>) -> bool {
        matches!(&specifier.local, ModuleExportName::IdentifierReference(name) if self.is_a_type(name))
    }

    fn is_type_import(&self, specifier: &ImportDeclarationSpecifier<'_>) -> bool {
        if let ImportDeclarationSpecifier::ImportSpecifier(named) = specifier
            && named.import_kind.is_type()
        {
            return true;
        }
        specifier.local().symbol_id.get().is_some_and(|symbol| !self.is_used_as_value(symbol))
    }

    fn is_used_as_value(&self, symbol: SymbolId) -> bool {
        self.scoping.get_resolved_references(symbol).any(|reference| reference.flags().is_value() && !reference.flags().is_value_as_type())
    }

    /// Removes an item of a list, and the comma after it.
    fn erase_listed(&mut self, start: usize, end: usize) {
        self.edits.blank(start, end);
        let comma = next_token(self.code, end);
        if self.code[comma..].starts_with(',') {
            self.edits.blank(comma, comma + 1);
        }
    }
}
