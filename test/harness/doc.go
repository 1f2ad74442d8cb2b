// Package harness runs lapse as its users do: the real binary, in processes of
// its own, over a real port. Nothing here knows more of lapse than its
// contract.
//
// A test package builds the binary once, in TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
//
// and its tests start servers and run commands:
//
//	s := harness.Serve(t, "--durability", "os")
//	s.Run("collection", "create", "orders").OK()
//	s.Kill()
//	s.Restart()
package harness
