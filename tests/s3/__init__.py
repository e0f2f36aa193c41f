"""S3 servers for tests, a proxy that breaks what goes to them, and the tests that need both."""
