package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change of one line.
type mutant struct {
	ID   string `json:"id"`   // stays the same when lines above it are added
	File string `json:"file"` // from the root of the module
	Line int    `json:"line"`
	Op   string `json:"op"`
	Was  string `json:"was"` // the text that is replaced
	Now  string `json:"now"`

	offset int
	covers int  // line that tests execute when they come by here
	global bool // outside of functions, where no coverage is measured: every test may notice
}

// apply returns the file with the change in it.
func (m mutant) apply(source []byte) []byte {
	return bytes.Join([][]byte{source[:m.offset], []byte(m.Now), source[m.offset+len(m.Was):]}, nil)
}

// mutantsOf lists all mutants of the package in a directory below the root of the module,
// in the order of its files. Files that this system does not build have none that would
// compile into its tests; who runs them draws another.
func mutantsOf(root, dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found, err := mutantsIn(filepath.ToSlash(filepath.Join(dir, filepath.Base(path))), source)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// mutantsIn lists the mutants of one file.
func mutantsIn(name string, source []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{name: name, source: source, fset: fset, seen: map[string]int{}}
	for _, d := range tree.Decls {
		f.decl(d)
	}
	return f.found, nil
}

type finder struct {
	name   string
	source []byte
	fset   *token.FileSet
	seen   map[string]int // equal IDs so far
	cases  []caseExpr
	found  []mutant
}

// caseExpr is an expression of a case. Coverage knows statements only: it is evaluated
// when its switch is executed, also by tests that do not take the case.
type caseExpr struct {
	ast.Expr
	line int // of the switch
}

// decl finds the mutants of a declaration. Only functions and constants have some.
func (f *finder) decl(d ast.Decl) {
	switch d := d.(type) {
	case *ast.GenDecl:
		if d.Tok == token.CONST || d.Tok == token.VAR {
			first := len(f.found)
			f.walk(d, nil)
			for i := range f.found[first:] {
				f.found[first+i].global = true
			}
		}
	case *ast.FuncDecl:
		if d.Body != nil {
			f.walk(d.Body, d.Type)
		}
	}
}

// walk finds the mutants below a node; in is the function that returns there return from.
func (f *finder) walk(n ast.Node, in *ast.FuncType) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			f.walk(n.Body, n.Type)
			return false
		case *ast.IfStmt:
			f.replace("negate", n.Cond, "!("+f.text(n.Cond)+")")
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					f.cases = append(f.cases, caseExpr{e, f.fset.Position(n.Switch).Line})
				}
			}
		case *ast.CaseClause:
			for _, e := range n.List {
				if isCondition(e) {
					f.replace("negate", e, "!("+f.text(e)+")")
				}
			}
		case *ast.BinaryExpr:
			if other, ok := swaps[n.Op]; ok {
				f.add(swapName(n.Op), n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other.String())
			}
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && f.worthDropping(call) {
				f.replace("drop call", n, "")
			}
		case *ast.IncDecStmt:
			f.replace("drop count", n, "")
		case *ast.AssignStmt:
			f.assign(n)
		case *ast.ReturnStmt:
			f.returns(n, in)
		case *ast.BasicLit:
			if n.Kind == token.INT {
				now := "0"
				if n.Value == "0" {
					now = "1"
				}
				f.replace("constant", n, now)
			}
		case *ast.CallExpr: // a nil or a number in make says how much, not what
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "make" {
				return false
			}
		}
		return true
	})
}

var swaps = map[token.Token]token.Token{
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
}

func swapName(op token.Token) string {
	if op == token.LAND || op == token.LOR {
		return "and/or"
	}
	return "off by one"
}

// isCondition reports whether a case is one of a switch without a value, as far as its
// form shows.
func isCondition(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR, token.LSS, token.LEQ, token.GTR, token.GEQ, token.EQL, token.NEQ:
			return true
		}
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	}
	return false
}

// worthDropping leaves out what no test can or should notice: logs, and locks, which are
// the race detector's.
func (f *finder) worthDropping(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return true
	}
	switch sel.Sel.Name {
	case "Lock", "Unlock", "RLock", "RUnlock", "Debug", "Info", "Warn", "Error", "Helper":
		return false
	}
	return true
}

// assign keeps what is computed, so that variables and imports stay in use, and drops
// where it goes.
func (f *finder) assign(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE {
		return
	}
	for _, l := range n.Lhs {
		if id, ok := l.(*ast.Ident); ok && id.Name == "_" {
			return
		}
	}
	blanks := strings.TrimSuffix(strings.Repeat("_, ", len(n.Lhs)), ", ")
	f.add("drop assignment", n.Pos(), n.Rhs[0].Pos(), blanks+" = ")
}

// returns makes an error nil, the opposite of a bool, and nothing of a number.
func (f *finder) returns(n *ast.ReturnStmt, in *ast.FuncType) {
	if in == nil || in.Results == nil || len(n.Results) == 0 || in.Results.NumFields() != len(n.Results) {
		return
	}
	last := n.Results[len(n.Results)-1]
	kind, ok := in.Results.List[len(in.Results.List)-1].Type.(*ast.Ident)
	if !ok {
		return
	}
	text := f.text(last)
	switch kind.Name {
	case "error":
		if text == "nil" {
			return
		}
		f.add("no error", n.Pos(), n.Pos(), "_ = "+strings.ReplaceAll(text, "\n", " ")+"; ")
		m := &f.found[len(f.found)-1]
		start, end := f.offset(n.Pos()), f.offset(last.Pos())
		m.Was = string(f.source[start:f.offset(last.End())])
		m.Now += string(f.source[start:end]) + "nil"
	case "bool":
		if len(n.Results) == 1 {
			f.replace("opposite", last, "!("+text+")")
		}
	case "int", "int64", "uint64", "float64":
		if _, literal := last.(*ast.BasicLit); !literal && len(n.Results) == 1 {
			f.add("zero", n.Pos(), n.Pos(), "_ = "+text+"; return 0")
			f.found[len(f.found)-1].Was = f.text(n)
		}
	}
}

func (f *finder) replace(op string, n ast.Node, now string) { f.add(op, n.Pos(), n.End(), now) }

func (f *finder) add(op string, from, to token.Pos, now string) {
	at := f.fset.Position(from)
	was := string(f.source[at.Offset:f.offset(to)])
	lines := bytes.Split(f.source, []byte("\n"))
	id := fmt.Sprintf("%s|%s|%d|%s", f.name, op, at.Column, strings.TrimSpace(string(lines[at.Line-1])))
	f.seen[id]++
	if f.seen[id] > 1 {
		id += fmt.Sprintf("|%d", f.seen[id])
	}
	line := at.Line
	for _, c := range f.cases {
		if c.Pos() <= from && from < c.End() {
			line = c.line
		}
	}
	f.found = append(f.found, mutant{ID: id, File: f.name, Line: at.Line, Op: op, Was: was, Now: now, offset: at.Offset, covers: line})
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }
