#!/usr/bin/env python3
"""Print "PASSED FAILED" of a meson test log (one JSON object a line). A test program that lists its own tests, as cmocka's do
("[  PASSED  ] 6 test(s)."), counts as many; skipped ones count as neither."""
import json
import re
import sys

passed = failed = 0
with open(sys.argv[1]) as log:
    for line in log:
        test = json.loads(line)
        text = test.get("stdout", "") + test.get("stderr", "")
        inner = {word: sum(map(int, re.findall(rf"\[  {word}  \] (\d+) test", text))) for word in ("PASSED", "FAILED")}
        if test["result"] == "OK":
            passed += inner["PASSED"] or 1
        elif test["result"] not in ("SKIP", "EXPECTEDFAIL"):
            passed += inner["PASSED"]
            failed += inner["FAILED"] or 1
print(passed, failed)
