package jinja

// expr is an expression; eval never changes the node.
type expr interface {
	eval(r *run, f *frame) (Value, error)
}

// stmt is a statement; exec writes to the run's output and says whether a break
// or continue is under way.
type stmt interface {
	exec(r *run, f *frame) (signal, error)
	lineNo() int
}

type pos struct{ line int }

func (p pos) lineNo() int { return p.line }

// Expressions. A nil expression stands for an absent part.
type (
	constExpr struct{ val Value }
	// nameExpr is resolved by bind: the variable lives in slot of the frame that
	// is hops up the chain.
	nameExpr struct {
		name       string
		hops, slot int
	}
	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct{ keys, vals []expr }
	binExpr   struct {
		op   string
		l, r expr
	}
	logicExpr struct {
		and  bool
		l, r expr
	}
	unaryExpr struct {
		op byte // '-', '+' or '!' for not
		x  expr
	}
	concatExpr  struct{ parts []expr }
	compareExpr struct {
		x   expr
		ops []operand
	}
	operand struct {
		op string // ==, !=, <, <=, >, >=, in, not in
		x  expr
	}
	condExpr struct {
		test, yes, no expr
		line          int
	}
	attrExpr struct {
		x    expr
		name string
	}
	itemExpr  struct{ x, arg expr }
	sliceExpr struct{ x, lo, hi, step expr }
	callExpr  struct {
		fn   expr
		args callArgs
	}
	// filterExpr has a nil x where it takes the text of a block.
	filterExpr struct {
		x    expr
		name string
		args callArgs
		def  *filterDef
		line int
	}
	testExpr struct {
		x    expr
		name string
		args callArgs
		def  *testDef
		line int
	}
	// callArgs are the arguments of a call: positional, named, *dyn and **dynKw.
	callArgs struct {
		pos   []expr
		names []string
		named []expr
		dyn   expr
		dynKw expr
	}
)

// Assignment targets.
type (
	target      interface{ targetNode() }
	tupleTarget struct{ items []target }
	nsTarget    struct {
		ns   *nameExpr
		attr string
	}
)

func (*nameExpr) targetNode()    {}
func (*tupleTarget) targetNode() {}
func (*nsTarget) targetNode()    {}

// Statements. A scope belongs to a body that has variables of its own.
type (
	textStmt struct {
		pos
		text string
	}
	outputStmt struct {
		pos
		x expr
	}
	forStmt struct {
		pos
		target    target
		iter      expr
		test      expr
		recursive bool
		body      []stmt
		orElse    []stmt
		bodyScope *scope
		elseScope *scope
		testScope *scope
		// testTarget is target bound in testScope.
		testTarget target
		loopSlot   int
	}
	ifStmt struct {
		pos
		test   expr
		body   []stmt
		elifs  []*ifStmt
		orElse []stmt
	}
	setStmt struct {
		pos
		target target
		x      expr
	}
	setBlockStmt struct {
		pos
		target target
		filter *filterExpr
		body   []stmt
		scope  *scope
	}
	withStmt struct {
		pos
		targets []target
		values  []expr
		body    []stmt
		scope   *scope
	}
	macroStmt struct {
		pos
		target *nameExpr
		def    *macroDef
	}
	callStmt struct {
		pos
		def  *macroDef // the caller
		call *callExpr
	}
	filterStmt struct {
		pos
		filter *filterExpr
		body   []stmt
		scope  *scope
	}
	scopeStmt struct {
		pos
		body  []stmt
		scope *scope
	}
	breakStmt    struct{ pos }
	continueStmt struct{ pos }
)

// macroDef is the code of a macro or of a call block's body.
type macroDef struct {
	name     string // "" for the body of a call block
	params   []*nameExpr
	defaults []expr // of the last parameters
	body     []stmt
	scope    *scope
	// Slots of the implicit parameters, -1 where the body does not use them.
	callerSlot, kwargsSlot, varargsSlot int
	explicitCaller                      bool // caller is an ordinary parameter
	usesCaller, usesKwargs, usesVarargs bool
}
