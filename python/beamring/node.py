class Node:
    pass
