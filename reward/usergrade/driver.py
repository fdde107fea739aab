def _tranche_load(path, name):
    """Read the user's file as a module and find the function in it."""
    global _tranche_function
    import importlib.util
    import os
    import sys

    sys.path.insert(0, os.getcwd())
    spec = importlib.util.spec_from_file_location("grader", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["grader"] = module
    spec.loader.exec_module(module)
    _tranche_function = getattr(module, name)


def _tranche_grade(case_path, verdict_path):
    """Call the function with the case; a number is a score. NaN is no JSON and is refused."""
    import json
    import os

    with open(case_path, encoding="utf-8") as f:
        case = json.load(f)
    os.remove(case_path)
    said = _tranche_function(case)
    if isinstance(said, (bool, int, float)):
        said = {"score": float(said)}
    with open(verdict_path, "w", encoding="utf-8") as f:
        json.dump(said, f, allow_nan=False)
