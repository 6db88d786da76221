// Package recall makes prompts that only somebody can answer who has read them: facts
// among other sentences, and a question about one of them. A KV block that was lost,
// mixed up or damaged on its way between workers is a fact that nobody knows any more, so
// that a right answer proves the transfer of the blocks in which the fact lies.
//
// Start with [Draw]. The wording is that of scripts/demo-model/dialogs.py, with which the
// built-in model is trained and measured; other models that follow instructions can
// answer it, too.
//
// It is pure: what asks, and which worker computes what, is for others.
package recall
