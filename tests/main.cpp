// tests/main.cpp: the test program's main function. Each subject has its own file, test_<subject>.cpp.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "doctest.h"
