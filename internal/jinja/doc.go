// Package jinja interprets the part of the Jinja template language that chat
// templates of language models use, with the results of the Python original:
// ordered dictionaries, Python's str and repr, Python's string methods.
//
// Start with [Parse], which turns a source into a [Template], and
// [Template.Render], which runs it over a [Dict] of variables. [FromJSON] makes
// variables out of request bodies and keeps the order of keys and the
// difference between 1 and 1.0. Errors are [SyntaxError] from Parse, and
// [RaiseError] (the template refused its input), [RenderError] and [ErrLimit]
// from Render.
//
// The environment is the one that chat templates are written for: trim_blocks
// and lstrip_blocks on, no automatic escaping, break and continue, a generation
// block that passes its body through, and the functions raise_exception,
// strftime_now, range, dict, namespace and joiner.
//
// A checkpoint's template is untrusted input. Templates cannot change lists or
// dictionaries, cannot reach anything outside their variables, and run under
// [Limits] and the caller's context. A Template never changes after Parse: it may
// be rendered from several goroutines at once, and so may the variables be
// shared, because rendering only reads them.
//
// What a template lacks it is told by name: an unknown filter or test when it is
// parsed, an unknown method when it is called. Absent are template inheritance,
// include and import (a chat template has no other files), Python's rarer string
// methods and conversions, arithmetic beyond 64 bits, and safe text: the filter
// escape returns a plain string, and safe changes nothing.
package jinja
