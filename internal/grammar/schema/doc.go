// Package schema turns JSON schemas into grammar rules.
//
// Start with [Compile], for a schema, and [Object], for any JSON object. The dialect
// is draft 2020-12 without what a grammar cannot say. Whatever is generated is valid
// under the schema; the reverse does not hold, for a schema accepts more spellings
// than a model needs:
//
//   - Properties come in the order in which the schema declares them, required ones
//     without a declaration after them, further ones last. A schema of an object that
//     declares properties and says nothing about further ones gets none.
//   - Between symbols stands at most one space, or one line break and up to 64 spaces
//     or tabs; after a colon at most one space; elsewhere nothing. So white space
//     cannot go on forever.
//   - Numbers have at most 18 digits before the point and 15 after it unless a bound
//     needs more, and exponents, only where there are no bounds, two digits.
//   - A schema without type takes the types that its keywords are about.
//   - Formats match the common form of what they name.
//   - Of older dialects, items with a list of schemas beside additionalItems are a tuple,
//     exclusiveMinimum and exclusiveMaximum may be booleans, and nullable allows null.
//   - References in a schema with an $id of its own start there.
//
// Not supported are: not, if, then, else; propertyNames, minProperties,
// maxProperties, dependentRequired, dependentSchemas, unevaluatedProperties; more than
// one pattern in patternProperties, or one beside declared properties; uniqueItems,
// contains, unevaluatedItems; anchors and references beyond the document; pattern
// together with format; oneOf unless it is clear from types, constants or required
// properties that no value fits two.
//
// A schema that cannot be satisfied, and one that asks for what is not supported, is
// refused with an [Error] that says where. [Options.Lax] ignores the latter where
// that is possible; then the output need not be valid in that respect.
//
// Functions are pure; their cost is bounded by limits on the size, the depth and the
// number of schemas that arise from combining others.
package schema
