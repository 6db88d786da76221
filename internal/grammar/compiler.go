package grammar

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// Options bounds what a Compiler keeps. Zero fields mean the defaults noted beside them.
type Options struct {
	Entries   int   // compiled grammars; 64
	Bytes     int64 // memory of all of them with their masks; 256 MiB
	MaskBytes int64 // cached masks of one grammar; 32 MiB
	Compiling int   // concurrent compilations; 1 for every two processors
	Waiting   int   // callers that wait to compile; 64
	Refused   int   // remembered constraints that were refused; 256
}

func (o *Options) setDefaults() {
	if o.Entries <= 0 {
		o.Entries = 64
	}
	if o.Bytes <= 0 {
		o.Bytes = 256 << 20
	}
	if o.MaskBytes <= 0 {
		o.MaskBytes = 32 << 20
	}
	if o.Compiling <= 0 {
		o.Compiling = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if o.Waiting <= 0 {
		o.Waiting = 64
	}
	if o.Refused <= 0 {
		o.Refused = 256
	}
}

// Compiler compiles constraints for one vocabulary and caches the most recently used
// grammars. It is safe for concurrent use.
type Compiler struct {
	vocab     Vocabulary
	tokens    [][]byte    // usable tokens
	spellable []pda.Range // nil for all
	trie      *trie
	words     int
	options   Options
	walkers   sync.Pool
	slots     chan struct{} // compilations in progress
	waiting   atomic.Int32  // callers that wait for one of slots

	mu    sync.Mutex
	cache map[[sha256.Size]byte]*list.Element // of *cached
	order *list.List                          // the most recently used first
	bytes int64
	// refused holds the errors of refused constraints, so that asking again costs
	// nothing. The first of oldest is dropped first.
	refused map[[sha256.Size]byte]error
	oldest  [][sha256.Size]byte
}

// cached is a compiled grammar, or one being compiled: ready is closed when g or err is
// set.
type cached struct {
	key   [sha256.Size]byte
	ready chan struct{}
	g     *Grammar
	err   error
	bytes int64 // counted in Compiler.bytes
	gone  bool  // no longer in the cache
}

// ErrVocabulary is returned when a vocabulary is empty or names ids outside of it.
var ErrVocabulary = errors.New("malformed vocabulary")

// NewCompiler reads a vocabulary, which must not change afterwards. That takes some 100
// ms for 150 000 tokens.
func NewCompiler(v Vocabulary, o Options) (*Compiler, error) {
	if len(v.Tokens) == 0 || len(v.Tokens) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d tokens", ErrVocabulary, len(v.Tokens))
	}
	for _, id := range v.EOS {
		if int(id) >= len(v.Tokens) {
			return nil, fmt.Errorf("%w: end-of-sequence id %d of %d tokens", ErrVocabulary, id, len(v.Tokens))
		}
	}
	for id := range v.First {
		if int(id) >= len(v.Tokens) {
			return nil, fmt.Errorf("%w: first bytes of id %d of %d tokens", ErrVocabulary, id, len(v.Tokens))
		}
	}
	o.setDefaults()
	c := &Compiler{
		vocab:   v,
		words:   (len(v.Tokens) + 63) / 64,
		options: o,
		slots:   make(chan struct{}, o.Compiling),
		cache:   map[[sha256.Size]byte]*list.Element{},
		order:   list.New(),
		refused: map[[sha256.Size]byte]error{},
	}
	c.walkers.New = func() any { return &walker{} }
	usable := make([][]byte, len(v.Tokens))
	copy(usable, v.Tokens)
	for _, id := range v.EOS {
		usable[id] = nil
	}
	c.tokens, c.spellable = spelling(usable)
	c.trie = newTrie(c.tokens)
	return c, nil
}

// usable reports whether an id is an ordinary text token.
func (c *Compiler) usable(id uint32) bool {
	return int64(id) < int64(len(c.tokens)) && len(c.tokens[id]) > 0
}

// JSONObject compiles the grammar of any JSON object.
func (c *Compiler) JSONObject(ctx context.Context) (*Grammar, error) {
	return c.Compile(ctx, Spec{Kind: KindJSONObject})
}

// JSONSchema compiles a JSON schema. Errors about it are *SchemaError.
func (c *Compiler) JSONSchema(ctx context.Context, schema []byte, o SchemaOptions) (*Grammar, error) {
	return c.Compile(ctx, Spec{Kind: KindJSONSchema, Text: string(schema), Lax: o.Lax, Compact: o.Compact})
}

// Regex compiles a regular expression in Go's syntax that the whole text must match.
// Errors about it are *RegexError.
func (c *Compiler) Regex(ctx context.Context, pattern string) (*Grammar, error) {
	return c.Compile(ctx, Spec{Kind: KindRegex, Text: pattern})
}

// Choice compiles a list of texts, of which one must be generated.
func (c *Compiler) Choice(ctx context.Context, choices []string) (*Grammar, error) {
	return c.Compile(ctx, Spec{Kind: KindChoice, Choices: choices})
}

// EBNF compiles a grammar in GBNF, the EBNF of llama.cpp; its rule root must match
// the whole text. Errors about it are *EBNFError.
func (c *Compiler) EBNF(ctx context.Context, source string) (*Grammar, error) {
	return c.Compile(ctx, Spec{Kind: KindEBNF, Text: source})
}

// Compile compiles a constraint and tests it, or returns the cached result of that.
// Beside the errors of its kind it returns ErrSpec, ErrTooLarge, ErrImpossible and
// ErrAmbiguous, which are about the constraint; ErrBusy; and the cause of ctx's end.
func (c *Compiler) Compile(ctx context.Context, s Spec) (*Grammar, error) {
	key, err := s.key()
	if err != nil {
		return nil, err
	}
	entry, _, err := c.look(key, false)
	if err != nil {
		return nil, err
	}
	if entry == nil {
		if err := c.takeSlot(ctx); err != nil {
			return nil, fmt.Errorf("compile %s: %w", s.Kind, err)
		}
		defer func() { <-c.slots }()
		var mine bool
		if entry, mine, err = c.look(key, true); err != nil {
			return nil, err // another caller got an error meanwhile
		}
		if mine {
			c.make(entry, s)
		}
	}
	select {
	case <-entry.ready:
		return entry.g, entry.err
	case <-ctx.Done():
		return nil, fmt.Errorf("compile %s: %w", s.Kind, context.Cause(ctx))
	}
}

// takeSlot waits until another compilation may begin.
func (c *Compiler) takeSlot(ctx context.Context) error {
	defer c.waiting.Add(-1)
	if int(c.waiting.Add(1)) > c.options.Waiting {
		return ErrBusy
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// look returns the cached entry of a constraint, or the error with which it was refused.
// If there is neither and begin is set, it makes an entry, which the caller must fill
// (mine).
func (c *Compiler) look(key [sha256.Size]byte, begin bool) (entry *cached, mine bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refused[key]; err != nil {
		return nil, false, err
	}
	if e, ok := c.cache[key]; ok {
		c.order.MoveToFront(e)
		return e.Value.(*cached), false, nil
	}
	if !begin {
		return nil, false, nil
	}
	entry = &cached{key: key, ready: make(chan struct{})}
	c.cache[key] = c.order.PushFront(entry)
	c.evictLocked()
	return entry, true, nil
}

// make compiles the constraint of a new entry and tests it.
func (c *Compiler) make(entry *cached, s Spec) {
	defer close(entry.ready)
	a, err := s.automaton(c.spellable)
	if err == nil {
		c.grow(entry, int64(a.Bytes()))
		entry.g = newGrammar(c, a, func(bytes int64) { c.grow(entry, bytes) })
		if err = entry.g.probe(); err != nil {
			err = fmt.Errorf("compile %s: %w", s.Kind, err)
		}
	}
	if err != nil {
		entry.g, entry.err = nil, err
		c.refuse(entry)
	}
}

// refuse takes a failed compilation out of the cache and remembers its error.
func (c *Compiler) refuse(entry *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !entry.gone {
		c.removeLocked(c.cache[entry.key])
	}
	if len(c.oldest) >= c.options.Refused {
		delete(c.refused, c.oldest[0])
		c.oldest = c.oldest[1:]
	}
	if c.refused[entry.key] == nil {
		c.oldest = append(c.oldest, entry.key)
	}
	c.refused[entry.key] = entry.err
}

// grow adds to the memory of a grammar and evicts others if necessary. A grammar that is
// no longer in the cache lives as long as its matchers and has its own bound.
func (c *Compiler) grow(entry *cached, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry.gone {
		return
	}
	entry.bytes += bytes
	c.bytes += bytes
	c.evictLocked()
}

func (c *Compiler) evictLocked() {
	for c.order.Len() > 1 && (c.order.Len() > c.options.Entries || c.bytes > c.options.Bytes) {
		c.removeLocked(c.order.Back())
	}
}

func (c *Compiler) removeLocked(e *list.Element) {
	entry := e.Value.(*cached)
	entry.gone = true
	c.bytes -= entry.bytes
	c.order.Remove(e)
	delete(c.cache, entry.key)
}
