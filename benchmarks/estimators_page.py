def page(cache):
    return ""
