// Command typecheck checks that packages are right Go for a platform, as a compiler does
// first, with all that they import. It generates no code and so takes a tenth of the time.
//
//	go run ./scripts/typecheck darwin/arm64 ./cmd/...
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 || !strings.Contains(os.Args[1], "/") {
		fmt.Fprintln(os.Stderr, "usage: typecheck GOOS/GOARCH PACKAGE...")
		os.Exit(2)
	}
	system, arch, _ := strings.Cut(os.Args[1], "/")
	checked, errs := check(system, arch, os.Args[2:])
	for _, err := range errs {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Fprintf(os.Stderr, "%s: %d packages, %d errors\n", os.Args[1], checked, len(errs))
	if len(errs) > 0 || checked == 0 {
		os.Exit(1)
	}
}

// check returns the number of packages, imported ones included, and what is wrong.
func check(system, arch string, patterns []string) (checked int, errs []error) {
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes | packages.NeedEmbedFiles,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
	}, patterns...)
	if err != nil {
		return 0, []error{err}
	}
	packages.Visit(pkgs, nil, func(p *packages.Package) {
		checked++
		for _, err := range p.Errors {
			errs = append(errs, err)
		}
	})
	return checked, errs
}
