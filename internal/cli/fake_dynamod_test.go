package cli

func fakeDynamod(args []string) int { return 0 }
